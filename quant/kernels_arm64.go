package quant

import (
	"math"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/dormousekv/dormouse/kv"
)

// kernels are what the CPU has, the fastest first.
func kernels() []kernel {
	if cpu.ARM64.HasASIMD && cpu.ARM64.HasCRC32 {
		return []kernel{kernelNEON, kernelGo}
	}
	return []kernel{kernelGo}
}

// fence has nothing to do: all stores are ordinary ones. A hint to keep them out of the caches (STNP) is not given, since
// what it gains differs between these CPUs, and is nothing on some.
func (k kernel) fence() {}

// quantize is [quantizeGo] that goes on with the largest error so far.
func (k kernel) quantize(dt kv.DType, dst, src []byte, worst float32) (exceptions uint64, newWorst float32) {
	groups := len(src) / dt.RowBytes(groupValues)
	if k == kernelGo || groups == 0 {
		exceptions, newWorst = quantizeGo(dt, dst, src)
		return exceptions, max(worst, newWorst)
	}
	out, in := unsafe.SliceData(dst[:groups*blockBytes]), unsafe.SliceData(src)
	var found uint32
	switch dt {
	case kv.F16:
		exceptions, found = quantizeF16NEON(out, in, groups)
	case kv.BF16:
		exceptions, found = quantizeBF16NEON(out, in, groups)
	default:
		exceptions, found = quantizeF32NEON(out, in, groups)
	}
	quantizeRare(dt, dst, src, exceptions)
	return exceptions, max(worst, math.Float32frombits(found))
}

// quantizeSum is quantize that goes on with the CRC32C of behind.
func (k kernel) quantizeSum(dt kv.DType, dst, src []byte, worst float32, behind []byte, sum uint32) (exceptions uint64, newWorst float32, newSum uint32) {
	exceptions, newWorst = k.quantize(dt, dst, src, worst)
	return exceptions, newWorst, updateSum(sum, behind)
}

// dequantize is [dequantizeGo].
func (k kernel) dequantize(dt kv.DType, dst, src []byte, _ bool) {
	groups := len(src) / blockBytes
	if k == kernelGo || groups == 0 {
		dequantizeGo(dt, dst, src)
		return
	}
	out, in := unsafe.SliceData(dst[:groups*dt.RowBytes(groupValues)]), unsafe.SliceData(src)
	switch dt {
	case kv.F16:
		dequantizeF16NEON(out, in, groups)
	case kv.BF16:
		dequantizeBF16NEON(out, in, groups)
	default:
		dequantizeF32NEON(out, in, groups)
	}
}

// dequantizeSum is dequantize that goes on with the CRC32C of src.
func (k kernel) dequantizeSum(dt kv.DType, dst, src []byte, _ bool, sum uint32) uint32 {
	groups := len(src) / blockBytes
	if k == kernelGo || groups == 0 {
		return dequantizeSumGo(dt, dst, src, sum)
	}
	out, in := unsafe.SliceData(dst[:groups*dt.RowBytes(groupValues)]), unsafe.SliceData(src)
	switch dt {
	case kv.F16:
		return ^dequantizeF16CRCNEON(out, in, groups, ^sum)
	case kv.BF16:
		return ^dequantizeBF16CRCNEON(out, in, groups, ^sum)
	}
	return ^dequantizeF32CRCNEON(out, in, groups, ^sum)
}

func (k kernel) copy(dst, src []byte, _ bool) { copy(dst, src) }

// copySum goes piece by piece: hash/crc32 has the instructions for it too.
func (k kernel) copySum(dst, src []byte, _ bool, sum uint32) uint32 { return copySumGo(dst, src, sum) }

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
		transpose16NEON(out, in, dstStride, srcStride, dstStep, srcStep, squares)
	case 4:
		transpose32NEON(out, in, dstStride, srcStride, dstStep, srcStep, squares)
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
			split16NEON(unsafe.SliceData(dst), unsafe.SliceData(src[:n*size]), turns, 8*b)
		} else {
			split32NEON(unsafe.SliceData(dst), unsafe.SliceData(src[:n*size]), turns, 8*b)
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
			merge16NEON(unsafe.SliceData(dst[:n*size]), unsafe.SliceData(src), turns, 8*b)
		} else {
			merge32NEON(unsafe.SliceData(dst[:n*size]), unsafe.SliceData(src), turns, 8*b)
		}
		dst, src = dst[n*size:], src[n:]
	}
	mergeGo(dst, src, b, size)
}

// quantizeQ4R is [quantizeQ4RGo] that goes on with the largest error so far. There is no kernel of its own for it yet.
func (k kernel) quantizeQ4R(dt kv.DType, dst, src []byte, worst float32) (exceptions uint64, newWorst float32) {
	exceptions, newWorst = quantizeQ4RGo(dt, dst, src)
	return exceptions, max(worst, newWorst)
}

// dequantizeQ4R is [dequantizeQ4RGo].
func (k kernel) dequantizeQ4R(dt kv.DType, dst, src []byte, _ bool) {
	groups := len(src) / blockBytesQ4R
	if k == kernelGo || groups == 0 {
		dequantizeQ4RGo(dt, dst, src)
		return
	}
	out, in := unsafe.SliceData(dst[:groups*dt.RowBytes(groupValuesQ4R)]), unsafe.SliceData(src)
	switch dt {
	case kv.F16:
		dequantizeQ4RF16NEON(out, in, groups)
	case kv.BF16:
		dequantizeQ4RBF16NEON(out, in, groups)
	default:
		dequantizeQ4RF32NEON(out, in, groups)
	}
}

// dequantizeSumQ4R is dequantizeQ4R that goes on with the CRC32C of src.
func (k kernel) dequantizeSumQ4R(dt kv.DType, dst, src []byte, _ bool, sum uint32) uint32 {
	groups := len(src) / blockBytesQ4R
	if k == kernelGo || groups == 0 {
		return dequantizeSumQ4RGo(dt, dst, src, sum)
	}
	out, in := unsafe.SliceData(dst[:groups*dt.RowBytes(groupValuesQ4R)]), unsafe.SliceData(src)
	switch dt {
	case kv.F16:
		return ^dequantizeQ4RF16CRCNEON(out, in, groups, ^sum)
	case kv.BF16:
		return ^dequantizeQ4RBF16CRCNEON(out, in, groups, ^sum)
	}
	return ^dequantizeQ4RF32CRCNEON(out, in, groups, ^sum)
}
