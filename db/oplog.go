//lint:file-ignore U1000 msgpack reads the tags of the _msgpack fields

package db

import (
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/wal"
)

// Kinds of log frames. The numbers are stored. docs/format/wal.md lists their payloads.
const (
	frameSnapshot = wal.KindSnapshot
	framePut      = 2  // opPut
	frameRemove   = 3  // opRemove
	frameMove     = 4  // opMove
	frameModel    = 5  // opModel
	frameRetire   = 6  // opRetire
	frameRef      = 7  // Ref
	frameUnref    = 8  // opUnref
	frameFlag     = 9  // opFlag
	frameNote     = 10 // opNote
	frameBarrier  = 11 // opBarrier
)

// opLoc is the place of a record.
type opLoc struct {
	_msgpack struct{} `msgpack:",as_array"`
	Segment  uint64
	Offset   int64
	Length   int64
	Tier     uint8
}

// opPut publishes records; Dead are those that they replace.
type opPut struct {
	_msgpack struct{} `msgpack:",as_array"`
	Records  []opRecord
	Dead     []opDead
}

type opRecord struct {
	_msgpack           struct{} `msgpack:",as_array"`
	Key                kv.Key
	Group              uint8
	Parent             kv.Key
	Model              kv.Fingerprint
	Scope              kv.ScopeID
	Loc                opLoc
	First              uint32
	Tokens             uint16
	RowFirst, RowCount uint16
	Flags              uint8
	Birth              uint64
	Hashes             []byte // token hashes, never tokens: the log is plain text
}

// opDead is a record that nothing names any more and whose bytes are to be destroyed.
type opDead struct {
	_msgpack struct{} `msgpack:",as_array"`
	Key      kv.Key
	Group    uint8
	Loc      opLoc
}

// opRemove takes records out of the store: evicted, or deleted for good.
type opRemove struct {
	_msgpack struct{} `msgpack:",as_array"`
	Deleted  bool     // false: evicted
	Dead     []opDead
	Refs     []string // refs that go with them
	Birth    uint64   // the last that was given to a record: what has a later one was stored since
}

// opMove says that a record was copied to another place. It applies only if the key is still at From.
type opMove struct {
	_msgpack struct{} `msgpack:",as_array"`
	Key      kv.Key
	Group    uint8
	From, To opLoc
	Birth    uint64
}

// opRetire drops a model: every record, every ref, every segment.
type opRetire struct {
	_msgpack struct{} `msgpack:",as_array"`
	Model    kv.Fingerprint
	Segments []uint64
}

type opUnref struct {
	_msgpack struct{} `msgpack:",as_array"`
	Name     string
}

type opFlag struct {
	_msgpack struct{} `msgpack:",as_array"`
	Key      kv.Key
	Group    uint8
	Loc      opLoc
	Flags    uint8
}

// opBarrier says that segments and log are durable up to a frame. It has a later number, since others were written meanwhile.
type opBarrier struct {
	_msgpack struct{} `msgpack:",as_array"`
	LSN      uint64
}

// opNote is a note on a model; an empty value removes it.
type opNote struct {
	_msgpack struct{} `msgpack:",as_array"`
	Model    kv.Fingerprint
	Name     string
	Value    []byte
}

func encodeOp(op any) []byte {
	b, err := msgpack.Marshal(op)
	if err != nil {
		panic(fmt.Sprintf("db: encode %T: %v", op, err)) // our own types always encode
	}
	return b
}

func decodeOp[T any](f wal.Frame) (op T, err error) {
	if err := unmarshal(f.Payload, &op); err != nil {
		return op, &CorruptError{File: f.File, Offset: f.Offset, What: fmt.Sprintf("log frame %d of kind %d", f.LSN, f.Kind), Err: err}
	}
	return op, nil
}

func toOpLoc(l loc.Loc) opLoc {
	return opLoc{Segment: l.Segment, Offset: l.Offset, Length: l.Length, Tier: l.Tier}
}

func (l opLoc) loc() loc.Loc {
	return loc.Loc{Segment: l.Segment, Offset: l.Offset, Length: l.Length, Tier: l.Tier}
}

func (r opRecord) entry() index.Entry {
	return index.Entry{
		Key: r.Key, Group: r.Group, Parent: r.Parent, Model: r.Model, Scope: r.Scope, Loc: r.Loc.loc(),
		First: r.First, Tokens: r.Tokens, RowFirst: r.RowFirst, RowCount: r.RowCount, Flags: r.Flags, Birth: r.Birth,
		Hashes: r.Hashes,
	}
}

func opRecordOf(e index.Entry) opRecord {
	return opRecord{
		Key: e.Key, Group: e.Group, Parent: e.Parent, Model: e.Model, Scope: e.Scope, Loc: toOpLoc(e.Loc),
		First: e.First, Tokens: e.Tokens, RowFirst: e.RowFirst, RowCount: e.RowCount, Flags: e.Flags, Birth: e.Birth,
		Hashes: e.Hashes,
	}
}
