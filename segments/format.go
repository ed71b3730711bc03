package segments

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
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

// area is the bytes [from, to) of a header.
type area struct{ from, to int }

// reserved returns an [ErrVersion] that names the first byte of b that is drawn as zero and is not; off is where b lies in the file,
// which is left to the caller. The checksum of b is right: another release has given that byte a meaning.
func reserved(b []byte, off int64, what string, all ...area) *damage.Error {
	for _, s := range all {
		if i := vfs.FirstNonZero(b[s.from:s.to]); i >= 0 {
			i += s.from
			e := damage.New("", off+int64(i), "reserved byte of a "+what, 0, b[i])
			e.Err = ErrVersion
			return e
		}
	}
	return nil
}

func crc32c(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }
