package quant

import "math"

// Conversions between f32 and the 16-bit types. To the narrower type they round to nearest, ties to even, as the
// hardware does; a NaN stays a NaN with the upper bits of its payload, and becomes quiet.

const (
	f16Inf       = 0x7c00 // exponent all ones; above it, without the sign, are the NaNs
	f16MinNormal = 0x0400 // 2^-14
	f16Sign      = 0x8000

	f32Sign = 1 << 31
	f32Inf  = 0x7f800000
)

func f16ToF32(h uint16) float32 {
	sign := uint32(h&f16Sign) << 16
	mag := uint32(h &^ f16Sign)
	switch {
	case mag >= f16MinNormal && mag < f16Inf:
		return math.Float32frombits(sign | (mag<<13 + (127-15)<<23))
	case mag >= f16Inf:
		return math.Float32frombits(sign | f32Inf | (mag&0x3ff)<<13)
	}
	// Zero and subnormal: mag x 2^-24, exact.
	return math.Float32frombits(sign | math.Float32bits(float32(int32(mag))*(1.0/(1<<24))))
}

func f32ToF16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign := uint16(bits >> 16 & f16Sign)
	mag := bits &^ f32Sign
	switch {
	case mag >= 0x477ff000: // 65520 and above round to infinity; infinity and NaN
		if mag > f32Inf {
			return sign | f16Inf | 0x0200 | uint16(mag>>13&0x3ff)
		}
		return sign | f16Inf
	case mag >= 0x38800000: // 2^-14: normal
		return sign | uint16((mag-(127-15)<<23+0x0fff+mag>>13&1)>>13)
	}
	// Below 2^-14 results are multiples of 2^-24. Those are also the last bits of f32 numbers from 0.5 to 1, so the
	// addition rounds to them, ties to even.
	return sign | uint16(math.Float32bits(math.Float32frombits(mag)+0.5)-0x3f000000)
}

func bf16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

func f32ToBF16(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&^f32Sign > f32Inf {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
