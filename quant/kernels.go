package quant

import (
	"encoding/binary"
	"math"

	"github.com/dormousekv/dormouse/kv"
)

// The kernels work on whole groups that lie one after the other, and don't allocate. These in plain Go are the
// reference: a kernel for one kind of CPU gives the same bits, maximum error included. So what they do is fixed, for
// any input:
//
// Quantizing is ggml's quantize_row_q8_0_ref (ggml-quants.c), each step rounded to f32:
//
//	amax = max |x|;  d = amax / 127;  id = d != 0 ? 1/d : 0
//	scale = f16(d), ties to even;  q = round(x * id), halves away from zero
//
// The codes come from d itself, not from the rounded scale. Where C leaves the outcome open, the block is zero: when
// the group has a NaN or an infinity, and when 1/d overflows.
//
// Dequantizing is f32(scale) * q, rounded to the tensor's type, ties to even. A scale that is not finite counts as 0:
// such a group is always an exception, and Inf x 0 differs between CPUs.

const (
	groupValues = 32
	blockBytes  = 2 + groupValues // of a block_q8_0: f16 scale, 32 int8
	maskGroups  = 64              // a quantizing kernel takes at most so many groups: one bit each

	// The largest scale whose 127-fold still rounds to a finite f16: 127 x 515.5 = 65468.5, 127 x 516 = 65532.
	maxScaleF16 = 0x6007
	maxScale    = f16Inf - 1
)

// quantizeGo writes the blocks of the groups in src, at most 64, to dst. It returns a bit for each group that int8 cannot
// hold, the first group's lowest, and the largest |x' - x| of the others, x' as [dequantizeGo] gives it.
func quantizeGo(dt kv.DType, dst, src []byte) (exceptions uint64, maxError float32) {
	switch dt {
	case kv.F16:
		return quantizeF16(dst, src)
	case kv.BF16:
		return quantizeBF16(dst, src)
	}
	return quantizeF32(dst, src)
}

// dequantizeGo writes the values of the blocks in src, any number of them, to dst.
func dequantizeGo(dt kv.DType, dst, src []byte) {
	switch dt {
	case kv.F16:
		dequantizeF16(dst, src)
	case kv.BF16:
		dequantizeBF16(dst, src)
	default:
		dequantizeF32(dst, src)
	}
}

func quantizeF16(dst, src []byte) (exceptions uint64, maxError float32) {
	var x [groupValues]float32
	for i := 0; len(src) >= 2*groupValues; i++ {
		in := (*[2 * groupValues]byte)(src)
		var top uint32
		for j := 0; j < groupValues; j += 4 {
			v := binary.LittleEndian.Uint64(in[2*j:])
			x[j], top = widen(uint32(v)&0xffff, top)
			x[j+1], top = widen(uint32(v)>>16, top)
			x[j+2], top = widen(uint32(v>>32)&0xffff, top)
			x[j+3], top = widen(uint32(v>>48), top)
		}
		amax := f16ToF32(uint16(top))
		e, ok := quantizeGroup((*[blockBytes]byte)(dst), &x, math.Float32bits(amax), maxScaleF16, toF16)
		if ok {
			maxError = max(maxError, e)
		} else {
			exceptions |= 1 << i
		}
		src, dst = src[2*groupValues:], dst[blockBytes:]
	}
	return exceptions, maxError
}

// widen is the f32 of h, unless h is a NaN or an infinity, and the larger of top and h without its sign: those bits
// order as the values do. The factor moves the exponent, and makes normal numbers of subnormal ones.
func widen(h, top uint32) (float32, uint32) {
	mag := h &^ f16Sign
	return math.Float32frombits(h&f16Sign<<16|mag<<13) * (1 << 112), max(top, mag)
}

func quantizeBF16(dst, src []byte) (exceptions uint64, maxError float32) {
	var x [groupValues]float32
	for i := 0; len(src) >= 2*groupValues; i++ {
		in := (*[2 * groupValues]byte)(src)
		var top uint32
		for j := 0; j < groupValues; j += 2 {
			v := binary.LittleEndian.Uint32(in[2*j:])
			x[j], top = math.Float32frombits(v<<16), max(top, v<<16&^f32Sign)
			x[j+1], top = math.Float32frombits(v&^0xffff), max(top, v&^0xffff&^f32Sign)
		}
		e, ok := quantizeGroup((*[blockBytes]byte)(dst), &x, top, maxScale, toBF16)
		if ok {
			maxError = max(maxError, e)
		} else {
			exceptions |= 1 << i
		}
		src, dst = src[2*groupValues:], dst[blockBytes:]
	}
	return exceptions, maxError
}

func quantizeF32(dst, src []byte) (exceptions uint64, maxError float32) {
	var x [groupValues]float32
	for i := 0; len(src) >= 4*groupValues; i++ {
		in := (*[4 * groupValues]byte)(src)
		var top uint32
		for j := range x {
			v := binary.LittleEndian.Uint32(in[4*j:])
			x[j], top = math.Float32frombits(v), max(top, v&^f32Sign)
		}
		e, ok := quantizeGroup((*[blockBytes]byte)(dst), &x, top, maxScale, toF32)
		if ok {
			maxError = max(maxError, e)
		} else {
			exceptions |= 1 << i
		}
		src, dst = src[4*groupValues:], dst[blockBytes:]
	}
	return exceptions, maxError
}

// rounding takes the bits of an f32 to those of the nearest number of a narrower type that is normal there, ties to
// even: add half, and one more if the last bit to keep is set, then drop the rest.
type rounding struct{ half, odd, drop, shift uint32 }

var (
	toF16  = rounding{half: 0x0fff, odd: 1, drop: 0x1fff, shift: 13}
	toBF16 = rounding{half: 0x7fff, odd: 1, drop: 0xffff, shift: 16}
	toF32  = rounding{}
)

// quantizeGroup writes one block. top has the bits of max |x|. ok is false if int8 cannot hold the group: it has a NaN
// or an infinity, or its scale is above limit, or zero or subnormal though the group is not all zero. Else maxError is
// the largest error.
func quantizeGroup(out *[blockBytes]byte, x *[groupValues]float32, top uint32, limit uint16, to rounding) (maxError float32, ok bool) {
	if top >= f32Inf {
		*out = [blockBytes]byte{}
		return 0, false
	}
	d := math.Float32frombits(top) / 127
	var id float32
	if d != 0 {
		id = 1 / d
	}
	scale := f32ToF16(d)
	binary.LittleEndian.PutUint16(out[:], scale)
	if id > math.MaxFloat32 { // infinite: what a conversion of Inf or NaN to an integer gives differs between CPUs
		*out = [blockBytes]byte{}
		return 0, false
	}
	d = f16ToF32(scale)
	var worst uint32
	for j, v := range x {
		// Rounding as roundf does: adding 0.5 itself would lift 0.49999997 to 1.
		t := float32(v * id)
		half := math.Float32frombits(math.Float32bits(t)&f32Sign | 0x3effffff)
		q := int32(t + half)
		out[2+j] = byte(q)
		// If the scale is good, the product is zero or normal in the tensor's type, and far from infinity.
		y := math.Float32bits(d * float32(q))
		y = (y + to.half + y>>(to.shift&31)&to.odd) &^ to.drop
		worst = max(worst, math.Float32bits(math.Float32frombits(y)-v)&^f32Sign)
	}
	return math.Float32frombits(worst), top == 0 || scale >= f16MinNormal && scale <= limit
}

func dequantizeF16(dst, src []byte) {
	for len(src) >= blockBytes {
		in, out := (*[blockBytes]byte)(src), (*[2 * groupValues]byte)(dst)
		scale := finiteScale(in)
		if mag := scale &^ f16Sign; mag >= f16MinNormal && mag < 0x6000 { // 2^-14 to below 512
			// Scaled by 2^-112, a product has the exponent that it will have in f16: what is left is to round. It is
			// zero or a normal f32, and 128 x 511.75 does not overflow.
			d := math.Float32frombits(math.Float32bits(f16ToF32(scale)) - 112<<23)
			for j := 0; j < groupValues; j += 4 {
				v := uint64(narrow(d, in[2+j])) | uint64(narrow(d, in[3+j]))<<16 |
					uint64(narrow(d, in[4+j]))<<32 | uint64(narrow(d, in[5+j]))<<48
				binary.LittleEndian.PutUint64(out[2*j:], v)
			}
		} else {
			d := f16ToF32(scale)
			for j := range groupValues {
				binary.LittleEndian.PutUint16(out[2*j:], f32ToF16(d*float32(int8(in[2+j]))))
			}
		}
		src, dst = src[blockBytes:], dst[2*groupValues:]
	}
}

// narrow is d*q in f16, for a d that is scaled by 2^-112.
func narrow(d float32, q byte) uint16 {
	b := math.Float32bits(d * float32(int8(q)))
	return uint16(b>>16&f16Sign) | uint16((b&^f32Sign+0x0fff+b>>13&1)>>13)
}

func dequantizeBF16(dst, src []byte) {
	for len(src) >= blockBytes {
		in, out := (*[blockBytes]byte)(src), (*[2 * groupValues]byte)(dst)
		d := f16ToF32(finiteScale(in))
		for j := range groupValues {
			b := math.Float32bits(d * float32(int8(in[2+j]))) // never infinite: 128 x 65504 is far from it
			binary.LittleEndian.PutUint16(out[2*j:], uint16((b+0x7fff+b>>16&1)>>16))
		}
		src, dst = src[blockBytes:], dst[2*groupValues:]
	}
}

func dequantizeF32(dst, src []byte) {
	for len(src) >= blockBytes {
		in, out := (*[blockBytes]byte)(src), (*[4 * groupValues]byte)(dst)
		d := f16ToF32(finiteScale(in))
		for j := range groupValues {
			binary.LittleEndian.PutUint32(out[4*j:], math.Float32bits(d*float32(int8(in[2+j]))))
		}
		src, dst = src[blockBytes:], dst[4*groupValues:]
	}
}

func finiteScale(block *[blockBytes]byte) uint16 { return finite(binary.LittleEndian.Uint16(block[:])) }

// finite is an f16, or 0 if it is not finite.
func finite(h uint16) uint16 {
	if h&f16Inf == f16Inf {
		return 0
	}
	return h
}
