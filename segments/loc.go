package segments

import (
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
)

// Loc is where a record lies.
type Loc = loc.Loc

// Meta is what the caller says about a record. The rest of the header (store, segment, own offset, lengths, checksum)
// is filled in when the record is appended.
type Meta struct {
	Key    kv.Key
	Group  uint8
	Parent kv.Key // of the block before: the chain's root for the first
	Model  kv.Fingerprint
	Scope  kv.ScopeID
	First  uint32 // position of the block's first token
	Seq    uint64 // orders copies of one key
	// Created is when the record was first put, in Unix seconds; 0 if nobody knows. Copies keep it.
	Created int64
	Tokens  []kv.Token

	// Spans are those that touch the block, sorted. Start is relative to the block's first token: negative if the span
	// began earlier. A span may go on after the block's end.
	Spans []kv.Span
}

// TensorEntry is a record's table row for one plane: the stored rows of one tensor.
type TensorEntry struct {
	Tensor      uint16 // index in the descriptor
	Codec       uint8
	Compression uint8
	FirstRow    uint16 // relative to the block's first token
	Rows        uint16
	Exceptions  uint32  // exception groups behind the codes
	MaxError    float32 // largest absolute difference that quantization made

	// Filled in by the Builder.
	Offset uint64 // in the record
	Length uint64 // stored bytes
	CRC    uint32 // CRC32C of the stored bytes
}
