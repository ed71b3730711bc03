package quant

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/dormousekv/dormouse/kv"
)

// An implementation of the same arithmetic that shares nothing with kernels.go: everything is computed in float64, where
// each step (a quotient, a product, a rounding to f32) is exact or rounds innocuously, and 16-bit numbers are built
// from math.Frexp and math.RoundToEven.

func refNarrow(v float64, mantissa, minExp int, infinity uint16) uint16 {
	var sign uint16
	if math.Signbit(v) {
		sign, v = 0x8000, -v
	}
	ulp := math.Ldexp(1, minExp-mantissa) // of subnormal numbers
	if _, exp := math.Frexp(v); exp-1 > minExp {
		ulp = math.Ldexp(1, exp-1-mantissa)
	}
	n := math.RoundToEven(v/ulp) * ulp // what v rounds to, exactly
	frac, exp := math.Frexp(n)
	switch {
	case n == 0:
		return sign
	case exp-1 < minExp:
		return sign | uint16(n/ulp)
	case exp-1 > -minExp+1:
		return sign | infinity
	}
	return sign | uint16(exp-minExp)<<mantissa | uint16(math.Ldexp(frac, mantissa+1))&(1<<mantissa-1)
}

// refF16 rounds a number to f16.
func refF16(v float64) uint16 { return refNarrow(v, 10, -14, 0x7c00) }

// refBF16 rounds a number to bf16.
func refBF16(v float64) uint16 { return refNarrow(v, 7, -126, 0x7f80) }

// refWiden gives the value of a 16-bit number, as IEEE 754 defines it.
func refWiden(h uint16, mantissa, minExp int) float64 {
	exp, frac := int(h&0x7fff)>>mantissa, float64(h&(1<<mantissa-1))
	v := math.Ldexp(frac, minExp-mantissa)
	switch {
	case exp == 2*-minExp+3 && frac == 0:
		v = math.Inf(1)
	case exp == 2*-minExp+3:
		v = math.NaN()
	case exp > 0:
		v = math.Ldexp(frac+math.Ldexp(1, mantissa), minExp-mantissa+exp-1)
	}
	if h&0x8000 != 0 {
		v = -v
	}
	return v
}

func refFromF16(h uint16) float64  { return refF16Values()[h] }
func refFromBF16(h uint16) float64 { return refWiden(h, 7, -126) }

var refF16Values = sync.OnceValue(func() *[1 << 16]float64 {
	var all [1 << 16]float64
	for h := range all {
		all[h] = refWiden(uint16(h), 10, -14)
	}
	return &all
})

// refBlock quantizes 32 finite values to a block_q8_0.
func refBlock(x []float32) (block [34]byte) {
	amax := 0.0
	for _, v := range x {
		amax = math.Max(amax, math.Abs(float64(v)))
	}
	d := float32(amax / 127)
	var id float32
	if d != 0 {
		id = float32(1 / float64(d))
	}
	binary.LittleEndian.PutUint16(block[:], refF16(float64(d)))
	if math.IsInf(float64(id), 0) {
		return [34]byte{}
	}
	for j, v := range x {
		t := float32(float64(v) * float64(id))
		block[2+j] = byte(int8(math.Round(float64(t)))) // halves away from zero
	}
	return block
}

// refException says why int8 cannot hold a group, or "".
func refException(dt kv.DType, x []float32) string {
	amax := 0.0
	for _, v := range x {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return "not finite"
		}
		amax = math.Max(amax, math.Abs(float64(v)))
	}
	scale := refFromF16(refF16(float64(float32(amax / 127))))
	switch {
	case amax == 0:
		return ""
	case scale < math.Ldexp(1, -14):
		return "underflow"
	case math.IsInf(scale, 0):
		return "overflow"
	case dt == kv.F16 && math.IsInf(refFromF16(refF16(127*scale)), 0):
		return "overflow in f16"
	}
	return ""
}

// refDecoded is value j of a block, in the tensor's type.
func refDecoded(dt kv.DType, block []byte, j int) float64 {
	v := refFromF16(binary.LittleEndian.Uint16(block)) * float64(int8(block[2+j]))
	switch dt {
	case kv.F16:
		return refFromF16(refF16(v))
	case kv.BF16:
		return refFromBF16(refBF16(v))
	}
	return v
}

// values reads packed elements.
func values(dt kv.DType, b []byte) []float32 {
	var out []float32
	for size := dt.GroupBytes(); len(b) >= size; b = b[size:] {
		switch dt {
		case kv.F16:
			out = append(out, float32(refFromF16(binary.LittleEndian.Uint16(b))))
		case kv.BF16:
			out = append(out, math.Float32frombits(uint32(binary.LittleEndian.Uint16(b))<<16))
		default:
			out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
	}
	return out
}

// elements writes finite values as packed elements.
func elements(dt kv.DType, x ...float32) []byte {
	var out []byte
	for _, v := range x {
		switch dt {
		case kv.F16:
			out = binary.LittleEndian.AppendUint16(out, refF16(float64(v)))
		case kv.BF16:
			out = binary.LittleEndian.AppendUint16(out, refBF16(float64(v)))
		default:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
	}
	return out
}
