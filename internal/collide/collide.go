package collide

import (
	"encoding/binary"
	"math/bits"
)

const c1, c2 = 0x87c37b91114253d5, 0x4cf5ad432745937f

// Twin changes the bytes [at, at+24) of b, and nothing changes in the hash of an input that b is a part of. In that input, two
// whole blocks of 16 bytes begin at that place: its offset is a multiple of 16.
//
// A difference in one bit of what a block mixes into the state is shifted to the highest bit, where neither the additions nor
// the multiplication by 5 carry it on; the other half of the block, and then the next block, take it back.
func Twin(b []byte, at int) {
	flip(b[at:], 36, c1, 31, c2)
	flip(b[at+8:], 32, c2, 33, c1)
	flip(b[at+16:], 63, c1, 31, c2)
}

// flip changes a word so that what is mixed in of it differs in one bit.
func flip(b []byte, bit int, first uint64, rotate int, second uint64) {
	k := bits.RotateLeft64(binary.LittleEndian.Uint64(b)*first, rotate) * second
	k ^= 1 << bit
	k = bits.RotateLeft64(k*inverse(second), -rotate) * inverse(first)
	binary.LittleEndian.PutUint64(b, k)
}

// inverse is the x with a*x = 1, of an odd number.
func inverse(a uint64) uint64 {
	x := a
	for range 6 {
		x *= 2 - a*x
	}
	return x
}
