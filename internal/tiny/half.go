package tiny

import "math"

// fromHalf is the value of every f16 bit pattern (IEEE 754 binary16).
var fromHalf = func() (table [1 << 16]float32) {
	for bits := range table {
		sign, exponent, fraction := uint32(bits>>15), bits>>10&31, bits&0x3ff
		switch exponent {
		case 0: // zero and subnormals: fraction x 2^-24
			v := math.Float32bits(float32(fraction) / (1 << 24))
			table[bits] = math.Float32frombits(v | sign<<31)
		case 31: // infinities and NaNs
			table[bits] = math.Float32frombits(sign<<31 | 0xff<<23 | uint32(fraction)<<13)
		default:
			table[bits] = math.Float32frombits(sign<<31 | uint32(exponent-15+127)<<23 | uint32(fraction)<<13)
		}
	}
	return table
}()

// toHalf rounds to the nearest f16, ties to even.
func toHalf(v float32) uint16 {
	bits := math.Float32bits(v)
	sign, magnitude := uint16(bits>>31)<<15, bits&0x7fffffff
	switch {
	case magnitude > 0x7f800000: // NaN
		return sign | 0x7e00
	case magnitude >= 0x477ff000: // 65520: halfway between the largest f16 and the next power of two
		return sign | 0x7c00
	case magnitude < 0x38800000: // below 2^-14: subnormal, or zero
		// Scaled by 2^24 the answer is an integer, and math.RoundToEven is exact in float64.
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(magnitude))*(1<<24)))
	}
	// Half a unit of the last f16 bit, less one if that bit is even, carries into the exponent where it has to.
	return sign | uint16((magnitude-0x38000000+0xfff+magnitude>>13&1)>>13)
}
