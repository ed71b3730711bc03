package state

import (
	"encoding/binary"
	"math"

	"github.com/dormousekv/dormouse/kv"
)

// Values reads packed rows of an element type of ggml's.
func Values(d kv.DType, b []byte) []float32 {
	out := make([]float32, 0, len(b)/d.GroupBytes()*d.Group())
	for ; len(b) >= d.GroupBytes(); b = b[d.GroupBytes():] {
		for i := range d.Group() {
			out = append(out, Value(d, b, i))
		}
	}
	return out
}

// Value reads value i of a group of an element type of ggml's; of others it is 0.
func Value(d kv.DType, group []byte, i int) float32 {
	if d == kv.F16 { // nearly all caches
		return half(binary.LittleEndian.Uint16(group))
	}
	return valueOf(d, group, i)
}

func valueOf(d kv.DType, group []byte, i int) float32 {
	u16 := func(at int) uint16 { return binary.LittleEndian.Uint16(group[at:]) }
	nibble := func(from int) byte { return group[from+i%16] >> (i / 16 * 4) & 15 }
	fifth := func(from int) byte { return byte(binary.LittleEndian.Uint32(group[from:])>>i) & 1 << 4 }
	switch d {
	case kv.F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(group))
	case kv.BF16:
		return math.Float32frombits(uint32(u16(0)) << 16)
	case kv.Q8_0:
		return half(u16(0)) * float32(int8(group[2+i]))
	case kv.Q4_0:
		return half(u16(0)) * (float32(nibble(2)) - 8)
	case kv.Q4_1:
		return half(u16(0))*float32(nibble(4)) + half(u16(2))
	case kv.Q5_0:
		return half(u16(0)) * (float32(nibble(6)|fifth(2)) - 16)
	case kv.Q5_1:
		return half(u16(0))*float32(nibble(8)|fifth(4)) + half(u16(2))
	}
	return 0
}

// half is the value of an IEEE half.
func half(h uint16) float32 {
	sign, exp, frac := uint32(h&0x8000)<<16, uint32(h>>10&31), uint32(h&1023)
	switch exp {
	case 0:
		f := float32(frac) / (1 << 24)
		if sign != 0 {
			f = -f
		}
		return f
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}
