package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
)

// This file alone knows where bytes lie in a plane; docs/format/plane.md says the same in words. All integers are
// little-endian. What a plane is, codec, compression, rows and number of exceptions, is told by [Plane]; the bytes
// themselves say nothing about it.

// Limits of a plane. They bound what a damaged [Plane] can ask for.
const (
	// MaxRows is the most rows a plane can have: the tensor table counts them in 16 bits.
	MaxRows = 1<<16 - 1
	// MaxStateBytes is the most bytes of a state whose length varies.
	MaxStateBytes = 1 << 40
)

// A Raw plane is the rows, packed: element after element, row after row. A state whose length varies is its bytes.
//
// A plane of groups, Q8_0 or Q4R:
//
//	┌──────────────────────┬──────────┬─────────────┬─────────────────────┐
//	│ codes                │ padding  │ indexes     │ originals           │
//	│ groups x block       │ 0 or 2 B │ n x u32     │ n x group, elements │
//	└──────────────────────┴──────────┴─────────────┴─────────────────────┘
//	 0                                 multiple of 4
//
//	block_q8_0: { f16 scale; i8 q[32] }, 34 bytes; group g is the values 32g to 32g+31 of the packed rows
//	block_q4r:  { f16 scale; f16 min; u8 q[32] }, 36 bytes; group g is the values 64g to 64g+63 of the packed rows. Byte 4i+j,
//	            j below 4, has in its lower half the code of value i+8j, in its upper half that of value i+8j+32
//
// n is Plane.Exceptions. Without exceptions the plane ends with the codes. The padding is zero, the indexes (of
// groups) ascend strictly, originals[i] are the elements of group indexes[i] in the tensor's own type.
type groupLayout struct {
	groups    uint64 // in the plane
	perRow    uint64
	elements  uint64 // bytes of one group in the tensor's type
	codes     uint64 // length
	indexes   uint64 // offset
	originals uint64 // offset
	total     uint64
}

// grouping is how a codec cuts rows: so many values have a block of so many bytes.
type grouping struct{ values, block int }

// groupings are those of the codecs that work on groups.
var groupings = [...]grouping{Q8_0: {groupValues, blockBytes}, Q4R: {groupValuesQ4R, blockBytesQ4R}}

// inGroups reports whether c's planes are planes of groups.
func (c Codec) inGroups() bool { return c == Q8_0 || c == Q4R }

func layoutGroups(c Codec, t kv.Tensor, rows int, exceptions uint32) groupLayout {
	by := groupings[c]
	l := groupLayout{perRow: uint64(t.Width / by.values), elements: uint64(t.DType.RowBytes(by.values))}
	l.groups = l.perRow * uint64(rows)
	l.codes = l.groups * uint64(by.block)
	l.indexes = (l.codes + 3) &^ 3
	n := uint64(exceptions)
	l.originals = l.indexes + 4*n
	l.total = l.codes
	if n > 0 {
		l.total = l.originals + n*l.elements
	}
	return l
}

// exceptions is the list beside a plane's codes.
type exceptions struct {
	indexes, originals []byte
}

func (e exceptions) len() int         { return len(e.indexes) / 4 }
func (e exceptions) at(i int) uint64  { return uint64(binary.LittleEndian.Uint32(e.indexes[4*i:])) }
func putIndex(b []byte, g int) []byte { return binary.LittleEndian.AppendUint32(b, uint32(g)) }

// parseGroups cuts a plane in its parts and checks every rule of the layout.
func parseGroups(t kv.Tensor, p Plane, plane []byte) (codes []byte, exc exceptions, err error) {
	l := layoutGroups(p.Codec, t, p.Rows, p.Exceptions)
	if l.total != uint64(len(plane)) {
		what := fmt.Sprintf("%s plane of %d rows and %d exceptions", p.Codec, p.Rows, p.Exceptions)
		return nil, exc, damage.New("", 0, what, bytesOf(l.total), bytesOf(uint64(len(plane))))
	}
	codes = plane[:l.codes]
	if p.Exceptions == 0 {
		return codes, exc, nil
	}
	for i := l.codes; i < l.indexes; i++ {
		if plane[i] != 0 {
			return nil, exc, damage.New("", int64(i), "padding behind codes", 0, plane[i])
		}
	}
	exc = exceptions{indexes: plane[l.indexes:l.originals], originals: plane[l.originals:]}
	for i, next := 0, uint64(0); i < exc.len(); i++ {
		g := exc.at(i)
		if g < next || g >= l.groups {
			expected := fmt.Sprintf("a group from %d to below %d", next, l.groups)
			return nil, exceptions{}, damage.New("", int64(l.indexes)+int64(4*i), "exception index", expected, g)
		}
		next = g + 1
	}
	return codes, exc, nil
}

// A ByteSplit plane is one coded stream for each byte of an element, the least significant first. Stream k holds byte k
// of every element, in the order of the packed rows.
//
// A coded stream holds a known number of bytes, cut in chunks of 128 KiB, the last one shorter:
//
//	┌───────────────────┬────────────────┬───────────────────┬────────────────┬──
//	│ u32 mode | length │ length bytes   │ u32 mode | length │ length bytes   │ …
//	└───────────────────┴────────────────┴───────────────────┴────────────────┴──
//
// mode is in the upper 8 bits: the chunk as it is (0), one byte that repeats (1), huff0 with its table, four streams (2).
const (
	chunkBytes = 128 << 10 // what huff0's four streams hold well within their 16-bit lengths

	modeStored  = 0
	modeRepeats = 1
	modeHuff0   = 2

	chunkHeaderBytes = 4
	chunkLengthMask  = 1<<24 - 1
)

func appendChunk(dst []byte, mode uint8, body []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(mode)<<24|uint32(len(body)))
	return append(dst, body...)
}

// cutChunk takes the first chunk off stream. n is the number of bytes that it stands for.
func cutChunk(stream []byte, n int) (mode uint8, body, rest []byte, err error) {
	if len(stream) < chunkHeaderBytes {
		return 0, nil, nil, fmt.Errorf("chunk header: expected 4 bytes, found %d", len(stream))
	}
	head := binary.LittleEndian.Uint32(stream)
	mode = uint8(head >> 24)
	stream = stream[chunkHeaderBytes:]
	length := uint64(head & chunkLengthMask)
	switch {
	case length > uint64(len(stream)):
		return 0, nil, nil, fmt.Errorf("chunk of %d bytes in the last %d bytes", length, len(stream))
	case mode > modeHuff0:
		return 0, nil, nil, fmt.Errorf("unknown chunk mode %d", mode)
	case mode == modeStored && length != uint64(n):
		return 0, nil, nil, fmt.Errorf("stored chunk: expected %d bytes, found %d", n, length)
	case mode == modeRepeats && length != 1:
		return 0, nil, nil, fmt.Errorf("repeating chunk: expected 1 byte, found %d", length)
	case mode == modeHuff0 && length >= uint64(n):
		return 0, nil, nil, fmt.Errorf("huff0 chunk: expected fewer than %d bytes, found %d", n, length)
	}
	return mode, stream[:length], stream[length:], nil
}

// codedBounds are the least and most bytes of a coded stream for n bytes.
func codedBounds(n uint64) (lo, hi uint64) {
	chunks := (n + chunkBytes - 1) / chunkBytes
	return chunks * (chunkHeaderBytes + 1), chunks*chunkHeaderBytes + n
}

// A compressed plane:
//
//	┌──────────────┬──────────────────────────────────────────────────────────┐
//	│ u64 length   │ zstd frame, s2 block, or coded stream (huff0)            │
//	└──────────────┴──────────────────────────────────────────────────────────┘
//
// length is that of the plane before compression, at least 256. All that is stored is at most 95 % of it.
const (
	compressedHeaderBytes = 8
	minCompressible       = 256 // from there on, zstd frames state the size of their content
)

func appendCompressedHeader(dst []byte, length int) []byte {
	return binary.LittleEndian.AppendUint64(dst, uint64(length))
}

// parseCompressed returns the plane's length before compression, checked against the bounds lo and hi, and the stream.
func parseCompressed(stored []byte, lo, hi uint64) (length int, stream []byte, err error) {
	if len(stored) <= compressedHeaderBytes {
		return 0, nil, damage.New("", 0, "compressed plane", "more than 8 bytes", bytesOf(uint64(len(stored))))
	}
	n := binary.LittleEndian.Uint64(stored)
	if n < max(lo, minCompressible) || n > hi || n > math.MaxInt {
		expected := fmt.Sprintf("from %d to %d", max(lo, minCompressible), hi)
		return 0, nil, damage.New("", 0, "length of a compressed plane", expected, n)
	}
	if !worthwhile(uint64(len(stored)), n) {
		expected := fmt.Sprintf("at most 95 %% of %d bytes", n)
		return 0, nil, damage.New("", 0, "compressed plane", expected, bytesOf(uint64(len(stored))))
	}
	return int(n), stored[compressedHeaderBytes:], nil
}

// worthwhile reports whether a plane of that length is kept compressed: it saves at least 5 %.
func worthwhile(stored, length uint64) bool {
	return length >= minCompressible && stored <= length-(length+19)/20
}

// plainBounds are the least and most bytes of a plane before compression.
func plainBounds(p Plane, t kv.Tensor) (lo, hi uint64) {
	rows := uint64(p.Rows)
	switch {
	case p.Codec.inGroups():
		n := layoutGroups(p.Codec, t, p.Rows, p.Exceptions).total
		return n, n
	case p.Codec == ByteSplit:
		streams := uint64(t.DType.GroupBytes())
		lo, hi = codedBounds(rows * uint64(t.Width))
		return streams * lo, streams * hi
	case t.Width == 0:
		return 0, MaxStateBytes
	}
	return rows * uint64(t.RowBytes()), rows * uint64(t.RowBytes())
}

func bytesOf(n uint64) string { return fmt.Sprintf("%d bytes", n) }
