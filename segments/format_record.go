package segments

import (
	"fmt"
	"math"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
)

const (
	recordMagic   = "DORM.REC"
	recordVersion = 2

	recordHeaderBytes = 256
	recordCRCOffset   = 252
	spanBytes         = 24
	entryBytes        = 64
	entryUsed         = 36 // of these, what has a meaning

	// flagsMandatory are the flags that a reader must know; it may ignore the others.
	flagsMandatory = 0x0000ffff

	// kindChained is a record that is found by the chained key of a prefix, and carries the tokens that it stands for: the only kind there is.
	kindChained = 1
)

// place is what a record must say about where it lies.
type place struct {
	uuid    kv.UUID
	segment uint64
	offset  int64
}

// recordHeader is the fixed header, decoded.
type recordHeader struct {
	group   uint8
	flags   uint32
	key     kv.Key
	parent  kv.Key
	model   kv.Fingerprint
	scope   kv.ScopeID
	at      place
	seq     uint64
	created int64 // Unix seconds
	total   int64 // bytes up to the end of the last plane
	first   uint32
	tokens  int
	spans   int
	table   int
	tableAt int // offset of the table
	head    int // offset of the first plane: the end of what the header's CRC covers
}

// layout computes where the parts of the head begin from their lengths.
func (h *recordHeader) layout() {
	h.tableAt = int(alignUp(int64(recordHeaderBytes+4*h.tokens+h.spans*spanBytes), planeAlignment))
	h.head = h.tableAt + h.table*entryBytes
}

// HeadBytes is what comes before the first plane of a record of so many tokens and planes, without spans.
func HeadBytes(tokens, planes int) int64 {
	h := recordHeader{tokens: tokens, table: planes}
	h.layout()
	return int64(h.head)
}

func (h *recordHeader) spansAt() int { return recordHeaderBytes + 4*h.tokens }

// A record. The head is everything before the first plane; its CRC32C leaves out only the four bytes that hold it.
//
//	  0 ┌──────────────────────┬─────────┬──────┬───────┬──────────────┐
//	    │ magic "DORM.REC"     │ u16 ver │u8 knd│u8 grp │ u32 flags    │
//	 16 ├──────────────────────┴─────────┴──────┴───────┴──────────────┤
//	    │ key 16                        │ parent key 16                │
//	 48 │ fingerprint 16                │ scope 16                     │
//	 80 │ store UUID 16                 │ u64 segment id │ u64 offset  │
//	112 │ u64 seq       │ u64 total     │ u32 first pos  │ u32 tokens  │
//	136 │ u32 header len │ u32 zero     │ u32 token len  │ u32 span len│
//	152 │ u32 table len  │ u8 cipher, 3 zero │ u32 key id │ nonce 24   │
//	188 │ u64 created   │ runtime key 16 │ zero 40     │ u32 CRC32C    │
//	256 ├──────────────────────────────────────────────────────────────┤
//	    │ tokens i32 …  spans {i32 start, u32 len, hash 16} …          │
//	    │ zero up to a multiple of 64                                  │
//	    ├──────────────────────────────────────────────────────────────┤
//	    │ table: 64 bytes a plane                                      │
//	    │ {u16 tensor, u8 codec, u8 compression, u16 row, u16 rows,    │
//	    │  u64 offset, u64 length, u32 CRC32C, u32 exceptions,         │
//	    │  f32 max error, zero 12, tag 16}                             │
//	    ├──────────────────────────────────────────────────────────────┤
//	    │ planes, each on a multiple of 64, zero between them          │
//	    └──────────────────────────────────────────────────────────────┘ total; zero up to the segment's alignment
//
// encodeRecordHeader writes the fields of h. What it does not know stays as it is in b, so that a copy keeps it.
func encodeRecordHeader(b []byte, h *recordHeader) {
	b = b[:recordHeaderBytes]
	copy(b, recordMagic)
	le.PutUint16(b[8:], recordVersion)
	b[10] = kindChained
	b[11] = h.group
	le.PutUint32(b[12:], h.flags)
	copy(b[16:], h.key[:])
	copy(b[32:], h.parent[:])
	copy(b[48:], h.model[:])
	copy(b[64:], h.scope[:])
	copy(b[80:], h.at.uuid[:])
	le.PutUint64(b[96:], h.at.segment)
	le.PutUint64(b[104:], uint64(h.at.offset))
	le.PutUint64(b[112:], h.seq)
	le.PutUint64(b[120:], uint64(h.total))
	le.PutUint32(b[128:], h.first)
	le.PutUint32(b[132:], uint32(h.tokens))
	le.PutUint32(b[136:], recordHeaderBytes)
	le.PutUint32(b[144:], uint32(4*h.tokens))
	le.PutUint32(b[148:], uint32(h.spans*spanBytes))
	le.PutUint32(b[152:], uint32(h.table*entryBytes))
	le.PutUint64(b[188:], uint64(h.created))
}

// sealRecordHead computes the CRC of a head that is complete.
func sealRecordHead(head []byte) {
	le.PutUint32(head[recordCRCOffset:], crcAround(head, recordCRCOffset))
}

// verdict is what lies at an aligned offset.
type verdict uint8

const (
	isRecord    verdict = iota
	isZero256           // a header of zeros
	isRubbish           // no record's magic: the inside of something, or overwritten
	isElsewhere         // a record's header that names another place: a payload that looks like one
	isDamaged           // a record of this place whose head is broken
)

// decodeRecordHead checks the record that begins at b[0] and has room bytes of the file for itself; b has as many of them as were read.
// Every length is checked against these before it is used. The error's file is left to the caller.
func decodeRecordHead(b []byte, room int64, at place) (h recordHeader, v verdict, _ *damage.Error) {
	fail := func(v verdict, off int, what string, expected, found any) (recordHeader, verdict, *damage.Error) {
		return recordHeader{}, v, damage.New("", at.offset+int64(off), what, expected, found)
	}
	if len(b) < recordHeaderBytes {
		return fail(isDamaged, 0, "record header", fmt.Sprintf("%d bytes", recordHeaderBytes), len(b))
	}
	if string(b[:8]) != recordMagic {
		if isZero(b[:recordHeaderBytes]) {
			return recordHeader{}, isZero256, nil
		}
		return fail(isRubbish, 0, "record magic", fmt.Sprintf("%q", recordMagic), fmt.Sprintf("%q", b[:8]))
	}
	h.at = place{uuid: kv.UUID(b[80:96]), segment: le.Uint64(b[96:])}
	offset := le.Uint64(b[104:])
	switch {
	case h.at.uuid != at.uuid:
		return fail(isElsewhere, 80, "store UUID of a record", at.uuid, h.at.uuid)
	case h.at.segment != at.segment:
		return fail(isElsewhere, 96, "segment id of a record", at.segment, h.at.segment)
	case offset != uint64(at.offset):
		return fail(isElsewhere, 104, "own offset of a record", at.offset, offset)
	}
	h.at.offset = at.offset
	if n := le.Uint16(b[8:]); n != recordVersion {
		_, _, e := fail(isDamaged, 8, "record version", recordVersion, n)
		e.Err = ErrVersion
		return recordHeader{}, isDamaged, e
	}

	header, tokens := le.Uint32(b[136:]), le.Uint32(b[132:])
	tokenLen, spanLen, tableLen := le.Uint32(b[144:]), le.Uint32(b[148:]), le.Uint32(b[152:])
	total := le.Uint64(b[120:])
	switch {
	case header != recordHeaderBytes:
		return fail(isDamaged, 136, "record header length", recordHeaderBytes, header)
	case tokens > kv.MaxBlockTokens:
		return fail(isDamaged, 132, "token count of a record", fmt.Sprintf("at most %d", kv.MaxBlockTokens), tokens)
	case tokenLen != 4*tokens:
		return fail(isDamaged, 144, "token length of a record", 4*tokens, tokenLen)
	case spanLen > kv.MaxBlockTokens*spanBytes || spanLen%spanBytes != 0:
		return fail(isDamaged, 148, "span length of a record", fmt.Sprintf("a multiple of %d up to %d", spanBytes, kv.MaxBlockTokens*spanBytes), spanLen)
	case tableLen > kv.MaxTensors*entryBytes || tableLen%entryBytes != 0:
		return fail(isDamaged, 152, "table length of a record", fmt.Sprintf("a multiple of %d up to %d", entryBytes, kv.MaxTensors*entryBytes), tableLen)
	case total > maxRecordBytes || total > uint64(room):
		return fail(isDamaged, 120, "record length", fmt.Sprintf("at most the %d bytes to the end of the file", room), total)
	}
	h.total = int64(total)
	h.tokens, h.spans, h.table = int(tokens), int(spanLen)/spanBytes, int(tableLen)/entryBytes
	h.layout()
	if int64(h.head) > h.total {
		return fail(isDamaged, 120, "record length", fmt.Sprintf("at least the %d bytes of its head", h.head), total)
	}
	if h.head > len(b) {
		return fail(isDamaged, 0, "record header", fmt.Sprintf("%d bytes", h.head), len(b))
	}
	if want, got := le.Uint32(b[recordCRCOffset:]), crcAround(b[:h.head], recordCRCOffset); want != got {
		return fail(isDamaged, recordCRCOffset, "record header checksum", fmt.Sprintf("%08x", want), fmt.Sprintf("%08x", got))
	}

	// From here on the bytes are what was written: what does not fit is a newer program's, or a bug.
	h.group, h.flags = b[11], le.Uint32(b[12:])
	h.key, h.parent = kv.Key(b[16:32]), kv.Key(b[32:48])
	h.model, h.scope = kv.Fingerprint(b[48:64]), kv.ScopeID(b[64:80])
	h.seq, h.first, h.created = le.Uint64(b[112:]), le.Uint32(b[128:]), int64(le.Uint64(b[188:]))
	if err := checkRecordHead(b[:h.head], &h); err != nil {
		return recordHeader{}, isDamaged, damage.Wrap("", at.offset, "record header", err)
	}
	return h, isRecord, nil
}

// checkRecordHead checks what the checksum cannot: that the head says nothing that this program does not know, and that
// table and spans lie within their bounds.
func checkRecordHead(head []byte, h *recordHeader) error {
	switch {
	case head[10] != kindChained:
		return fmt.Errorf("%w: record kind %d", ErrVersion, head[10])
	case h.flags&flagsMandatory != 0:
		return fmt.Errorf("%w: record flags %#x", ErrVersion, h.flags)
	case !isZero(head[140:144]):
		return fmt.Errorf("%w: reserved bytes of the lengths of a record header", ErrVersion)
	case head[156] != 0:
		return fmt.Errorf("%w: cipher %d", ErrVersion, head[156])
	case !isZero(head[157:188]):
		return fmt.Errorf("%w: key id or nonce of a record that is not encrypted", ErrVersion)
	case !isZero(head[196:212]):
		return fmt.Errorf("%w: a runtime's own key", ErrVersion)
	case !isZero(head[212:recordCRCOffset]):
		return fmt.Errorf("%w: reserved bytes of a record header", ErrVersion)
	case h.created < 0:
		return fmt.Errorf("created %d seconds before 1970", -h.created)
	case h.group >= kv.MaxGroups:
		return fmt.Errorf("group %d, at most %d", h.group, kv.MaxGroups-1)
	case uint64(h.first)+uint64(h.tokens) > kv.MaxTokens:
		return fmt.Errorf("tokens [%d, +%d), positions end at %d", h.first, h.tokens, kv.MaxTokens)
	}
	spans := head[h.spansAt():]
	end := math.MinInt
	for i := range h.spans {
		s := decodeSpan(spans, i)
		if err := checkSpan(s, h.tokens, end); err != nil {
			return fmt.Errorf("span %d %w", i, err)
		}
		end = s.End()
	}
	if !isZero(head[h.spansAt()+h.spans*spanBytes : h.tableAt]) {
		return fmt.Errorf("%w: bytes between the spans and the table", ErrVersion)
	}
	free := uint64(h.head)
	for i := range h.table {
		e := decodeEntry(head[h.tableAt:], i)
		switch {
		case !isZero(head[h.tableAt+i*entryBytes+entryUsed : h.tableAt+(i+1)*entryBytes]):
			return fmt.Errorf("%w: reserved bytes of plane %d", ErrVersion, i)
		case e.Offset%planeAlignment != 0 || e.Offset < free:
			return fmt.Errorf("plane %d begins at %d, expected a multiple of %d from %d on", i, e.Offset, planeAlignment, free)
		case e.Offset > uint64(h.total) || e.Length > uint64(h.total)-e.Offset:
			return fmt.Errorf("plane %d covers [%d, +%d), the record has %d bytes", i, e.Offset, e.Length, h.total)
		case e.Tensor >= kv.MaxTensors:
			return fmt.Errorf("plane %d is of tensor %d, at most %d", i, e.Tensor, kv.MaxTensors-1)
		case int(e.FirstRow)+int(e.Rows) > h.tokens: // what a plane is decompressed to is allocated by its rows
			return fmt.Errorf("plane %d has rows [%d, +%d) in a block of %d tokens", i, e.FirstRow, e.Rows, h.tokens)
		}
		free = e.Offset + e.Length
	}
	return nil
}
