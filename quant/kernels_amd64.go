package quant

import (
	"math"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/dormousekv/dormouse/kv"
)

// kernels are what the CPU has, the fastest first.
func kernels() []kernel {
	x := &cpu.X86
	avx2 := x.HasAVX2 && x.HasBMI2 && x.HasFMA && x.HasF16C && x.HasSSE42 && x.HasPCLMULQDQ
	switch {
	case avx2 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL:
		return []kernel{kernelAVX512, kernelAVX2, kernelGo}
	case avx2:
		return []kernel{kernelAVX2, kernelGo}
	}
	return []kernel{kernelGo}
}

// fence orders stores that went around the caches before all stores that come after it.
func (k kernel) fence() {
	if k != kernelGo {
		storeFence()
	}
}

// quantize is [quantizeGo] that goes on with the largest error so far.
func (k kernel) quantize(dt kv.DType, dst, src []byte, worst float32) (exceptions uint64, newWorst float32) {
	groups := len(src) / dt.RowBytes(groupValues)
	if k == kernelGo || groups == 0 {
		exceptions, newWorst = quantizeGo(dt, dst, src)
		return exceptions, max(worst, newWorst)
	}
	out, in := unsafe.SliceData(dst[:groups*blockBytes]), unsafe.SliceData(src)
	var notes [896]byte
	bits := math.Float32bits(worst)
	switch dt {
	case kv.F16:
		exceptions, bits = quantizeF16AVX2(out, in, groups, &notes, bits)
	case kv.BF16:
		exceptions, bits = quantizeBF16AVX2(out, in, groups, &notes, bits)
	default:
		exceptions, bits = quantizeF32AVX2(out, in, groups, &notes, bits)
	}
	quantizeRare(dt, dst, src, exceptions)
	return exceptions, math.Float32frombits(bits)
}

// quantizeSum is quantize that goes on with the CRC32C of behind: as many blocks as it writes, which are complete.
func (k kernel) quantizeSum(dt kv.DType, dst, src []byte, worst float32, behind []byte, sum uint32) (exceptions uint64, newWorst float32, newSum uint32) {
	groups := len(src) / dt.RowBytes(groupValues)
	if k == kernelGo || groups == 0 {
		exceptions, newWorst = k.quantize(dt, dst, src, worst)
		return exceptions, newWorst, updateSum(sum, behind)
	}
	out, in := unsafe.SliceData(dst[:groups*blockBytes]), unsafe.SliceData(src)
	done := unsafe.SliceData(behind[:groups*blockBytes])
	var notes [896]byte
	bits, sum := math.Float32bits(worst), ^sum
	switch dt {
	case kv.F16:
		exceptions, bits, sum = quantizeF16CRCAVX2(out, in, groups, &notes, bits, done, sum)
	case kv.BF16:
		exceptions, bits, sum = quantizeBF16CRCAVX2(out, in, groups, &notes, bits, done, sum)
	default:
		exceptions, bits, sum = quantizeF32CRCAVX2(out, in, groups, &notes, bits, done, sum)
	}
	quantizeRare(dt, dst, src, exceptions)
	return exceptions, math.Float32frombits(bits), ^sum
}

// dequantize is [dequantizeGo].
func (k kernel) dequantize(dt kv.DType, dst, src []byte, stream bool) {
	groups := len(src) / blockBytes
	if k == kernelGo || groups == 0 {
		dequantizeGo(dt, dst, src)
		return
	}
	dst = dst[:groups*dt.RowBytes(groupValues)]
	stream = stream && unaligned(dst, streamAlignment(dt)) == 0
	if k == kernelAVX512 && (!stream || unaligned(dst, lineBytes) == 0) {
		dequantizeAVX512(dt, dst, src, groups, stream)
		return
	}
	out, in := unsafe.SliceData(dst), unsafe.SliceData(src)
	switch {
	case dt == kv.F16 && stream:
		dequantizeF16StreamAVX2(out, in, groups)
	case dt == kv.F16:
		dequantizeF16AVX2(out, in, groups)
	case dt == kv.BF16 && stream:
		dequantizeBF16StreamAVX2(out, in, groups)
	case dt == kv.BF16:
		dequantizeBF16AVX2(out, in, groups)
	case stream:
		dequantizeF32StreamAVX2(out, in, groups)
	default:
		dequantizeF32AVX2(out, in, groups)
	}
}

// dequantizeSum is dequantize that goes on with the CRC32C of src.
func (k kernel) dequantizeSum(dt kv.DType, dst, src []byte, stream bool, sum uint32) uint32 {
	groups := len(src) / blockBytes
	if k == kernelGo || groups == 0 {
		return dequantizeSumGo(dt, dst, src, sum)
	}
	dst = dst[:groups*dt.RowBytes(groupValues)]
	stream = stream && unaligned(dst, streamAlignment(dt)) == 0
	if k == kernelAVX512 && (!stream || unaligned(dst, lineBytes) == 0) {
		return ^dequantizeSumAVX512(dt, dst, src, groups, stream, ^sum)
	}
	out, in := unsafe.SliceData(dst), unsafe.SliceData(src)
	sum = ^sum
	switch {
	case dt == kv.F16 && stream:
		sum = dequantizeF16CRCStreamAVX2(out, in, groups, sum)
	case dt == kv.F16:
		sum = dequantizeF16CRCAVX2(out, in, groups, sum)
	case dt == kv.BF16 && stream:
		sum = dequantizeBF16CRCStreamAVX2(out, in, groups, sum)
	case dt == kv.BF16:
		sum = dequantizeBF16CRCAVX2(out, in, groups, sum)
	case stream:
		sum = dequantizeF32CRCStreamAVX2(out, in, groups, sum)
	default:
		sum = dequantizeF32CRCAVX2(out, in, groups, sum)
	}
	return ^sum
}

// lineBytes is a cache line. One that is stored around the caches only in part costs more than any other.
const lineBytes = 64

// unaligned is how many bytes are in front of the first multiple of n.
func unaligned(dst []byte, n uintptr) int {
	return min(len(dst), int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst)))&(n-1)))
}

// streamAlignment is what dequantizing around the caches needs of dst. Anything else gets ordinary stores; to shift the
// values into place first was measured to be slower.
func streamAlignment(dt kv.DType) uintptr {
	if dt == kv.F16 {
		return 16
	}
	return 32
}

func (k kernel) copy(dst, src []byte, stream bool) {
	const turn = 256
	if k != kernelGo && stream {
		head := unaligned(dst, lineBytes)
		copy(dst[:head], src)
		dst, src = dst[head:], src[head:]
		if turns := len(dst) / turn; turns > 0 {
			copyStreamAVX2(unsafe.SliceData(dst), unsafe.SliceData(src[:len(dst)]), turns)
			dst, src = dst[turns*turn:], src[turns*turn:]
		}
	}
	copy(dst, src)
}

func (k kernel) copySum(dst, src []byte, stream bool, sum uint32) uint32 {
	const turn = 384
	if k == kernelGo {
		return copySumGo(dst, src, sum)
	}
	if stream {
		if head := unaligned(dst, lineBytes); head > 0 {
			sum = copySumGo(dst[:head], src[:head], sum)
			dst, src = dst[head:], src[head:]
		}
	}
	if turns := len(dst) / turn; turns > 0 {
		out, in := unsafe.SliceData(dst), unsafe.SliceData(src[:len(dst)])
		if stream {
			sum = ^copyCRCStreamAVX2(out, in, turns, ^sum)
		} else {
			sum = ^copyCRCAVX2(out, in, turns, ^sum)
		}
		dst, src = dst[turns*turn:], src[turns*turn:]
	}
	return copySumGo(dst, src, sum)
}

// transpose turns squares of 8 x 8 elements of 2 or 4 bytes: rows become columns. The strides are from row to row of a
// square, the steps from square to square. False if there is no kernel for it.
func (k kernel) transpose(size int, dst, src []byte, dstStride, srcStride, dstStep, srcStep, squares int) bool {
	if k == kernelGo {
		return false
	}
	last := squares - 1
	out := unsafe.SliceData(dst[:last*dstStep+7*dstStride+8*size])
	in := unsafe.SliceData(src[:last*srcStep+7*srcStride+8*size])
	switch size {
	case 2:
		transpose16AVX2(out, in, dstStride, srcStride, dstStep, srcStep, squares)
	case 4:
		transpose32AVX2(out, in, dstStride, srcStride, dstStep, srcStep, squares)
	default:
		return false
	}
	return true
}

// split takes byte b of every element of src, of 2 or 4 bytes.
func (k kernel) split(dst, src []byte, b, size int) {
	const turn = 32
	if turns := len(dst) / turn; k != kernelGo && turns > 0 {
		n := turns * turn
		if size == 2 {
			split16AVX2(unsafe.SliceData(dst), unsafe.SliceData(src[:n*size]), turns, 8*b)
		} else {
			split32AVX2(unsafe.SliceData(dst), unsafe.SliceData(src[:n*size]), turns, 8*b)
		}
		dst, src = dst[n:], src[n*size:]
	}
	splitGo(dst, src, b, size)
}

// merge is the reverse of split.
func (k kernel) merge(dst, src []byte, b, size int) {
	const turn = 32
	if turns := len(src) / turn; k != kernelGo && turns > 0 {
		n := turns * turn
		if size == 2 {
			merge16AVX2(unsafe.SliceData(dst[:n*size]), unsafe.SliceData(src), turns, 8*b)
		} else {
			merge32AVX2(unsafe.SliceData(dst[:n*size]), unsafe.SliceData(src), turns, 8*b)
		}
		dst, src = dst[n*size:], src[n:]
	}
	mergeGo(dst, src, b, size)
}

// quantizeQ4R is [quantizeQ4RGo] that goes on with the largest error so far.
func (k kernel) quantizeQ4R(dt kv.DType, dst, src []byte, worst float32) (exceptions uint64, newWorst float32) {
	groups := len(src) / dt.RowBytes(groupValuesQ4R)
	if k == kernelGo || groups == 0 {
		exceptions, newWorst = quantizeQ4RGo(dt, dst, src)
		return exceptions, max(worst, newWorst)
	}
	out, in := unsafe.SliceData(dst[:groups*blockBytesQ4R]), unsafe.SliceData(src)
	bits := math.Float32bits(worst)
	switch dt {
	case kv.F16:
		exceptions, bits = quantizeQ4RF16AVX2(out, in, groups, bits)
	case kv.BF16:
		exceptions, bits = quantizeQ4RBF16AVX2(out, in, groups, bits)
	default:
		exceptions, bits = quantizeQ4RF32AVX2(out, in, groups, bits)
	}
	return exceptions, math.Float32frombits(bits)
}

// dequantizeQ4R is [dequantizeQ4RGo].
func (k kernel) dequantizeQ4R(dt kv.DType, dst, src []byte, stream bool) {
	groups := len(src) / blockBytesQ4R
	if k == kernelGo || groups == 0 {
		dequantizeQ4RGo(dt, dst, src)
		return
	}
	dst = dst[:groups*dt.RowBytes(groupValuesQ4R)]
	stream = stream && unaligned(dst, streamAlignment(dt)) == 0
	out, in := unsafe.SliceData(dst), unsafe.SliceData(src)
	switch {
	case dt == kv.F16 && stream:
		dequantizeQ4RF16StreamAVX2(out, in, groups)
	case dt == kv.F16:
		dequantizeQ4RF16AVX2(out, in, groups)
	case dt == kv.BF16 && stream:
		dequantizeQ4RBF16StreamAVX2(out, in, groups)
	case dt == kv.BF16:
		dequantizeQ4RBF16AVX2(out, in, groups)
	case stream:
		dequantizeQ4RF32StreamAVX2(out, in, groups)
	default:
		dequantizeQ4RF32AVX2(out, in, groups)
	}
}

// dequantizeSumQ4R is dequantizeQ4R that goes on with the CRC32C of src.
func (k kernel) dequantizeSumQ4R(dt kv.DType, dst, src []byte, stream bool, sum uint32) uint32 {
	groups := len(src) / blockBytesQ4R
	if k == kernelGo || groups == 0 {
		return dequantizeSumQ4RGo(dt, dst, src, sum)
	}
	dst = dst[:groups*dt.RowBytes(groupValuesQ4R)]
	stream = stream && unaligned(dst, streamAlignment(dt)) == 0
	out, in := unsafe.SliceData(dst), unsafe.SliceData(src)
	switch {
	case dt == kv.F16 && stream:
		return ^dequantizeQ4RF16CRCStreamAVX2(out, in, groups, ^sum)
	case dt == kv.F16:
		return ^dequantizeQ4RF16CRCAVX2(out, in, groups, ^sum)
	case dt == kv.BF16 && stream:
		return ^dequantizeQ4RBF16CRCStreamAVX2(out, in, groups, ^sum)
	case dt == kv.BF16:
		return ^dequantizeQ4RBF16CRCAVX2(out, in, groups, ^sum)
	case stream:
		return ^dequantizeQ4RF32CRCStreamAVX2(out, in, groups, ^sum)
	}
	return ^dequantizeQ4RF32CRCAVX2(out, in, groups, ^sum)
}
