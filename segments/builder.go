package segments

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/dormousekv/dormouse/kv"
)

// Builder lays out one record in one pooled buffer. Planes are added in the order in which they are stored; then
// [Set.Append] writes the record, as often as it is called; then Release gives the buffer back. Not safe for
// concurrent use.
type Builder struct {
	h     recordHeader
	buf   []byte // whole capacity; [0, size) is laid out
	size  int64
	added int
	err   error
}

// NewBuilder starts a record with so many planes. A meta that cannot be stored is reported by AddPlane and Append, with
// an error that wraps errRecord. m.Tokens and m.Spans are copied.
func NewBuilder(m Meta, planes int) *Builder {
	b := &Builder{}
	switch {
	case len(m.Tokens) > kv.MaxBlockTokens:
		b.fail("%d tokens, at most %d", len(m.Tokens), kv.MaxBlockTokens)
	case uint64(m.First)+uint64(len(m.Tokens)) > kv.MaxTokens:
		b.fail("tokens [%d, +%d), positions end at %d", m.First, len(m.Tokens), kv.MaxTokens)
	case len(m.Spans) > kv.MaxBlockTokens:
		b.fail("%d spans, at most %d", len(m.Spans), kv.MaxBlockTokens)
	case planes < 0 || planes > kv.MaxTensors:
		b.fail("%d planes, at most %d", planes, kv.MaxTensors)
	case m.Group >= kv.MaxGroups:
		b.fail("group %d, at most %d", m.Group, kv.MaxGroups-1)
	}
	end := math.MinInt
	for i, s := range m.Spans {
		if err := checkSpan(s, len(m.Tokens), end); err != nil {
			b.fail("span %d %v", i, err)
		}
		if int64(s.Start) < math.MinInt32 || int64(s.Len) > math.MaxInt32 {
			b.fail("span %d [%d, +%d) needs more than 32 bits", i, s.Start, s.Len)
		}
		end = s.End()
	}
	if b.err != nil {
		return b
	}
	b.h = recordHeader{
		group: m.Group, key: m.Key, parent: m.Parent, model: m.Model, scope: m.Scope,
		seq: m.Seq, created: m.Created, first: m.First, tokens: len(m.Tokens), spans: len(m.Spans), table: planes,
	}
	b.h.layout()
	b.size = int64(b.h.head)
	b.buf = getBuffer(b.size)
	clear(b.buf[:b.size])
	for i, t := range m.Tokens {
		encodeToken(b.buf[recordHeaderBytes:], i, t)
	}
	for i, s := range m.Spans {
		encodeSpan(b.buf[b.h.spansAt():], i, s)
	}
	return b
}

func (b *Builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("%w: %s", errRecord, fmt.Sprintf(format, args...))
	}
}

// Grow makes room for n more bytes of planes, so that none of them has to be moved. It is a hint.
func (b *Builder) Grow(n int64) {
	if b.err == nil && n > 0 && n < maxRecordBytes {
		b.reserve(b.size + n + int64(b.h.table+1)*planeAlignment)
	}
}

// reserve moves the record into a buffer of at least n bytes.
func (b *Builder) reserve(n int64) {
	if n <= int64(len(b.buf)) {
		return
	}
	larger := getBuffer(n)
	copy(larger, b.buf[:b.size])
	putBuffer(b.buf)
	b.buf = larger
}

// AddPlane adds the next plane. encode gets an empty slice that begins on a 64-byte boundary of the record's buffer; it
// appends the stored bytes and returns the result, which may have moved. It may also fill in what is only known after
// encoding (codec, rows, exceptions, maximum error) in its copy of e, and must set CRC, the CRC32C of what it appended: who
// writes the bytes has them at hand. AddPlane sets Offset and Length. After an error the record can only be released.
func (b *Builder) AddPlane(e TensorEntry, encode func(dst []byte, e *TensorEntry) ([]byte, error)) error {
	if b.err != nil {
		return b.err
	}
	if b.added == b.h.table {
		b.fail("more than the %d planes that were announced", b.h.table)
		return b.err
	}
	at := alignUp(b.size, planeAlignment)
	b.reserve(at)
	clear(b.buf[b.size:at])
	room := b.buf[at:at:len(b.buf)]
	stored, err := encode(room, &e)
	if err != nil {
		b.err = err
		return err
	}
	end := at + int64(len(stored))
	if end > maxRecordBytes {
		b.fail("%d bytes, at most %d", end, int64(maxRecordBytes))
		return b.err
	}
	if unsafe.SliceData(stored) != unsafe.SliceData(room) || len(stored) > len(b.buf[at:]) {
		b.size = at
		b.reserve(end)
		copy(b.buf[at:], stored)
	}
	b.size = end
	e.Offset, e.Length = uint64(at), uint64(len(stored))
	if e.Tensor >= kv.MaxTensors {
		b.fail("tensor %d, at most %d", e.Tensor, kv.MaxTensors-1)
		return b.err
	}
	encodeEntry(b.buf[b.h.tableAt:], b.added, &e)
	b.added++
	return nil
}

// Size is the record's bytes so far; Append rounds them up to the alignment.
func (b *Builder) Size() int64 { return b.size }

// Release gives the buffer back. A nil or released Builder may be released again.
func (b *Builder) Release() {
	if b == nil {
		return
	}
	if b.buf != nil {
		putBuffer(b.buf)
	}
	*b = Builder{err: fmt.Errorf("%w: it was released", errRecord)}
}

// check says whether the record is complete.
func (b *Builder) check() error {
	if b.err == nil && b.added != b.h.table {
		return fmt.Errorf("%w: %d of %d planes were added", errRecord, b.added, b.h.table)
	}
	return b.err
}

// stamp finishes the record for its place and returns its bytes, zero-padded to length.
func (b *Builder) stamp(at place, length int64) []byte {
	b.reserve(length)
	clear(b.buf[b.size:length])
	b.h.at, b.h.total = at, b.size
	encodeRecordHeader(b.buf, &b.h)
	sealRecordHead(b.buf[:b.h.head])
	return b.buf[:length]
}

// rebuild starts a Builder that holds a copy of a stored record.
func rebuild(r *Record, seq uint64) *Builder {
	b := &Builder{h: r.h, size: r.h.total, added: r.h.table}
	b.h.seq = seq
	b.buf = getBuffer(b.size)
	copy(b.buf, r.b)
	return b
}
