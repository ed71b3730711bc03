package quant

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
)

// ErrChecksum is returned, inside of an error that is damage.ErrCorrupt, when the stored bytes of a plane don't have
// the checksum that was expected. The damage.Error says both.
var ErrChecksum = errors.New("quant: checksum differs")

// StreamBytes is how much a restore has to write for its stores to go around the caches. Below, what was restored is found
// in a cache by the first attention that reads it. Above, most of it would not stay, and each cache line would be read
// from memory before it is overwritten. Measured with 32 MiB of last-level cache: storing alone is faster around the caches
// from 12 MiB on, storing and then reading from 32 MiB on.
const StreamBytes = 16 << 20

// DecodeOptions are how [DecodeVerified] writes. The zero value stores the ordinary way.
type DecodeOptions struct {
	// Bytes is what the whole restore writes to the caller's memory, this call being one part of it. From
	// [StreamBytes] on, stores go around the caches.
	Bytes int64
}

// DecodeVerified is [Decode] that also compares the CRC32C of all stored bytes, those of rows that are not asked for
// too, with crc. Uncompressed [Raw], [Q8_0] and [Q4R] planes are read once for both, and nothing is allocated.
//
// If the checksum differs, the error is damage.ErrCorrupt and [ErrChecksum], and dst may hold anything, as after every
// error. When it returns, what it wrote is visible to whoever synchronizes with this goroutine, as with any store.
func DecodeVerified(dst kv.TensorRows, t kv.Tensor, p Plane, stored []byte, from int, crc uint32, o DecodeOptions) error {
	if o.Bytes < 0 {
		return fmt.Errorf("quant: DecodeOptions.Bytes is %d: expected a number of bytes, or 0", o.Bytes)
	}
	if err := checkDecode(dst, t, p, from); err != nil {
		return err
	}
	how := reading{sum: true, stream: o.Bytes >= StreamBytes}
	if p.Compression != None || p.Codec == ByteSplit {
		// Decoders of entropy codes don't get to see damaged bytes.
		if sum := updateSum(0, stored); sum != crc {
			return checksumError(crc, sum)
		}
		how.sum = false
		_, err := decode(dst, t, p, stored, from, how)
		return err
	}
	sum, err := decode(dst, t, p, stored, from, how)
	if err != nil && errors.Is(err, damage.ErrCorrupt) {
		sum = updateSum(0, stored) // rot is told by its checksum first
	} else if err != nil {
		return err
	}
	if sum != crc {
		return checksumError(crc, sum)
	}
	return err
}

func checksumError(expected, found uint32) error {
	return &damage.Error{
		What: "plane", Expected: fmt.Sprintf("checksum %08x", expected), Found: fmt.Sprintf("%08x", found), Err: ErrChecksum,
	}
}

// reading is how a plane is decoded.
type reading struct {
	sum    bool // compute the CRC32C of the stored bytes
	stream bool // store around the caches
}

// copy fills dst from src and goes on with the checksum, if it is wanted.
func (h reading) copy(dst, src []byte, sum uint32) uint32 {
	if h.sum {
		return active.copySum(dst, src, h.stream, sum)
	}
	active.copy(dst, src, h.stream)
	return 0
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// updateSum is the CRC32C of bytes whose first part has that sum, and whose last part is b.
func updateSum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }
