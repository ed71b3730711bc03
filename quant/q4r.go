package quant

import (
	"encoding/binary"
	"math"

	"github.com/dormousekv/dormouse/kv"
)

// The kernels of Q4R in plain Go, the reference, as kernels.go has those of Q8_0.
//
// Before it is quantized, a group of 64 values is turned: outliers and other channels are mixed, so that the 16 steps lie
// closer. T is the Walsh-Hadamard transform of the 8 values that lie 8 apart: over the bits 5, 4 and 3 of a value's place in its
// group, each of 3 steps takes two values whose places differ in that bit to their sum and their difference. T of T of x is 8 x.
//
// Quantizing, each step rounded to f32, the bits of T in that order:
//
//	r = T(x) / 4;  min = f16(min r);  scale = f16((max r - min) / 15), ties to even
//	q = (r - min) * (1 / scale), rounded, halves up, and held within 0 and 15
//
// Dequantizing is x = T(scale*q + min) / 2. T of the codes is whole numbers, from -60 to 120, and T of a constant is 8 times
// that at the places 0 to 7, and 0 elsewhere. So it is f32(scale)/2 * T(q), which is exact in f32, plus 4 f32(min) at those eight
// places, rounded to f32, and all of it rounded to the tensor's type, ties to even. A scale or minimum that is not finite
// counts as 0.

const (
	groupValuesQ4R = 64
	blockBytesQ4R  = 2 + 2 + groupValuesQ4R/2 // f16 scale, f16 min, 64 codes

	// Groups with a larger value are exceptions: below, nothing on the way overflows in any type.
	maxValueQ4R = 2048

	maxCodeQ4R = 15
)

// quantizeQ4RGo writes the blocks of the groups in src, at most 64, to dst. It returns a bit for each group that the codes
// cannot hold, whose block is zero, the first group's lowest, and the largest |x' - x| of the others, x' as [dequantizeQ4RGo]
// gives it.
func quantizeQ4RGo(dt kv.DType, dst, src []byte) (exceptions uint64, maxError float32) {
	var x [groupValuesQ4R]float32
	size := dt.RowBytes(groupValuesQ4R)
	for i := 0; len(src) >= size; i++ {
		switch dt {
		case kv.F16:
			for j := range x {
				x[j] = f16ToF32(binary.LittleEndian.Uint16(src[2*j:]))
			}
		case kv.BF16:
			for j := range x {
				x[j] = bf16ToF32(binary.LittleEndian.Uint16(src[2*j:]))
			}
		default:
			for j := range x {
				x[j] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*j:]))
			}
		}
		if e, ok := quantizeGroupQ4R(dt, (*[blockBytesQ4R]byte)(dst), &x); ok {
			maxError = max(maxError, e)
		} else {
			exceptions |= 1 << i
		}
		src, dst = src[size:], dst[blockBytesQ4R:]
	}
	return exceptions, maxError
}

// quantizeGroupQ4R writes one block. ok is false, and the block zero, if the codes cannot hold the group: it has a NaN or a
// value above 2048, or its scale is zero or subnormal though the group is not all zero. Else maxError is the largest error.
func quantizeGroupQ4R(dt kv.DType, out *[blockBytesQ4R]byte, x *[groupValuesQ4R]float32) (maxError float32, ok bool) {
	*out = [blockBytesQ4R]byte{}
	var top uint32
	for _, v := range x {
		top = max(top, math.Float32bits(v)&^f32Sign)
	}
	if top == 0 || top > math.Float32bits(maxValueQ4R) {
		return 0, top == 0
	}
	r := *x
	turn(&r)
	lo, hi := float32(math.MaxFloat32), float32(-math.MaxFloat32)
	for j := range r {
		r[j] *= 0.25
		lo, hi = min(lo, r[j]), max(hi, r[j])
	}
	if lo == 0 {
		lo = 0 // of both zeros the positive one
	}
	least := f32ToF16(lo)
	lo = f16ToF32(least)
	scale := f32ToF16(float32(hi-lo) / maxCodeQ4R)
	if scale < f16MinNormal || scale >= f16Inf { // or negative: all of it is where lo was rounded up
		return 0, false
	}
	id := 1 / f16ToF32(scale)
	var codes [groupValuesQ4R]int32
	for j, v := range r {
		t := float32(float32(v-lo) * id)
		codes[j] = int32(min(float32(max(t, 0)+0.5), maxCodeQ4R))
	}
	binary.LittleEndian.PutUint16(out[0:], scale)
	binary.LittleEndian.PutUint16(out[2:], least)
	for k := range groupValuesQ4R / 2 {
		at := placeQ4R(k)
		out[4+k] = byte(codes[at] | codes[at+32]<<4)
	}
	var y [groupValuesQ4R]float32
	turnBack(&y, &codes, scale, least)
	for j, v := range y {
		switch dt {
		case kv.F16:
			v = f16ToF32(f32ToF16(v))
		case kv.BF16:
			v = bf16ToF32(f32ToBF16(v))
		}
		maxError = max(maxError, math.Float32frombits(math.Float32bits(v-x[j])&^f32Sign))
	}
	return maxError, true
}

// turn is T.
func turn[E float32 | int32](x *[groupValuesQ4R]E) {
	for i := range 8 {
		a, b, c, d := x[i], x[i+8], x[i+16], x[i+24]
		e, f, g, h := x[i+32], x[i+40], x[i+48], x[i+56]
		a, b, c, d, e, f, g, h = a+e, b+f, c+g, d+h, a-e, b-f, c-g, d-h
		a, b, c, d, e, f, g, h = a+c, b+d, a-c, b-d, e+g, f+h, e-g, f-h
		x[i], x[i+8], x[i+16], x[i+24] = a+b, a-b, c+d, c-d
		x[i+32], x[i+40], x[i+48], x[i+56] = e+f, e-f, g+h, g-h
	}
}

// placeQ4R is the place of the value whose code is in the lower half of byte k. That in the upper half is 32 places behind.
func placeQ4R(k int) int { return k/4 + k%4*8 }

// turnBack fills y with the values of codes. It overwrites the codes.
func turnBack(y *[groupValuesQ4R]float32, codes *[groupValuesQ4R]int32, scale, least uint16) {
	turn(codes)
	d, m := f16ToF32(scale)*0.5, f16ToF32(least)*4
	for j, q := range codes {
		y[j] = float32(d * float32(q))
	}
	for j := range 8 {
		y[j] += m
	}
}

// dequantizeQ4RGo writes the values of the blocks in src, any number of them, to dst.
func dequantizeQ4RGo(dt kv.DType, dst, src []byte) {
	size := dt.RowBytes(groupValuesQ4R)
	var codes [groupValuesQ4R]int32
	var y [groupValuesQ4R]float32
	for ; len(src) >= blockBytesQ4R; src, dst = src[blockBytesQ4R:], dst[size:] {
		in := (*[blockBytesQ4R]byte)(src)
		for k, b := range in[4:] {
			at := placeQ4R(k)
			codes[at], codes[at+32] = int32(b&15), int32(b>>4)
		}
		turnBack(&y, &codes, finite(binary.LittleEndian.Uint16(in[0:])), finite(binary.LittleEndian.Uint16(in[2:])))
		switch dt {
		case kv.F16:
			for j, v := range y {
				binary.LittleEndian.PutUint16(dst[2*j:], f32ToF16(v))
			}
		case kv.BF16:
			for j, v := range y {
				binary.LittleEndian.PutUint16(dst[2*j:], f32ToBF16(v))
			}
		default:
			for j, v := range y {
				binary.LittleEndian.PutUint32(dst[4*j:], math.Float32bits(v))
			}
		}
	}
}

// dequantizeSumQ4RGo is dequantizeQ4RGo that goes on with the CRC32C of src, in pieces that stay in the first cache.
func dequantizeSumQ4RGo(dt kv.DType, dst, src []byte, sum uint32) uint32 {
	size := dt.RowBytes(groupValuesQ4R)
	for len(src) > 0 {
		n := min(len(src)/blockBytesQ4R, sumGroups)
		sum = updateSum(sum, src[:n*blockBytesQ4R])
		dequantizeQ4RGo(dt, dst[:n*size], src[:n*blockBytesQ4R])
		src, dst = src[n*blockBytesQ4R:], dst[n*size:]
	}
	return sum
}
