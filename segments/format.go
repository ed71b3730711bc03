package segments

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Units and limits of the format. Every length that comes from disk is compared with one of these, or with the file's
// size, before anything is sliced or allocated.
const (
	minAlignment = 4 << 10 // every alignment is a power of two from here to maxAlignment
	maxAlignment = 1 << 20

	planeAlignment = 64

	maxRecordBytes     = 1 << 40
	maxDescriptorBytes = 1 << 20
)

var le = binary.LittleEndian

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crcAround is the CRC32C of b without the four bytes at off, which hold it.
func crcAround(b []byte, off int) uint32 {
	return crc32.Update(crc32.Checksum(b[:off], castagnoli), castagnoli, b[off+4:])
}

// alignUp rounds n up to a multiple of a, a power of two. n must be below 1<<62.
func alignUp(n, a int64) int64 { return (n + a - 1) &^ (a - 1) }

func isZero(b []byte) bool { return vfs.Blank(b) }

func crc32c(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// The parts of a record's head behind the fixed header: tokens, spans and tensor table, as drawn in
// format_record.go. Whoever calls the decoders has checked that the part lies within b.

var errSpan = errors.New("does not fit")

// checkSpan checks a span of a block of so many tokens; end is where the span before it ends.
func checkSpan(s kv.Span, tokens, end int) error {
	if s.Len <= 0 || s.Start < end || s.Start >= tokens || s.End() <= 0 {
		return fmt.Errorf("[%d, +%d) %w in a block of %d tokens", s.Start, s.Len, errSpan, tokens)
	}
	return nil
}

func encodeToken(b []byte, i int, t kv.Token) { le.PutUint32(b[4*i:], uint32(t)) }
func decodeToken(b []byte, i int) kv.Token    { return kv.Token(le.Uint32(b[4*i:])) }

func encodeSpan(b []byte, i int, s kv.Span) {
	b = b[i*spanBytes:]
	le.PutUint32(b, uint32(int32(s.Start)))
	le.PutUint32(b[4:], uint32(s.Len))
	copy(b[8:spanBytes], s.Hash[:])
}

func decodeSpan(b []byte, i int) kv.Span {
	b = b[i*spanBytes:]
	return kv.Span{Start: int(int32(le.Uint32(b))), Len: int(le.Uint32(b[4:])), Hash: kv.Hash(b[8:spanBytes])}
}

func encodeEntry(b []byte, i int, e *TensorEntry) {
	b = b[i*entryBytes : (i+1)*entryBytes]
	clear(b)
	le.PutUint16(b, e.Tensor)
	b[2], b[3] = e.Codec, e.Compression
	le.PutUint16(b[4:], e.FirstRow)
	le.PutUint16(b[6:], e.Rows)
	le.PutUint64(b[8:], e.Offset)
	le.PutUint64(b[16:], e.Length)
	le.PutUint32(b[24:], e.CRC)
	le.PutUint32(b[28:], e.Exceptions)
	le.PutUint32(b[32:], math.Float32bits(e.MaxError))
}

func decodeEntry(b []byte, i int) TensorEntry {
	b = b[i*entryBytes:]
	return TensorEntry{
		Tensor: le.Uint16(b), Codec: b[2], Compression: b[3],
		FirstRow: le.Uint16(b[4:]), Rows: le.Uint16(b[6:]),
		Offset: le.Uint64(b[8:]), Length: le.Uint64(b[16:]),
		CRC: le.Uint32(b[24:]), Exceptions: le.Uint32(b[28:]),
		MaxError: math.Float32frombits(le.Uint32(b[32:])),
	}
}
