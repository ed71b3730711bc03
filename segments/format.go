package segments

import (
	"encoding/binary"
	"hash/crc32"

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

func crc32c(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }
