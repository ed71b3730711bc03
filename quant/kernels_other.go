//go:build !amd64 && !arm64

package quant

import "github.com/dormousekv/dormouse/kv"

func kernels() []kernel { return []kernel{kernelGo} }

func (k kernel) fence() {}

func (k kernel) quantize(dt kv.DType, dst, src []byte, worst float32) (exceptions uint64, newWorst float32) {
	exceptions, newWorst = quantizeGo(dt, dst, src)
	return exceptions, max(worst, newWorst)
}

func (k kernel) quantizeSum(dt kv.DType, dst, src []byte, worst float32, behind []byte, sum uint32) (exceptions uint64, newWorst float32, newSum uint32) {
	exceptions, newWorst = k.quantize(dt, dst, src, worst)
	return exceptions, newWorst, updateSum(sum, behind)
}

func (k kernel) dequantize(dt kv.DType, dst, src []byte, stream bool) { dequantizeGo(dt, dst, src) }

func (k kernel) dequantizeSum(dt kv.DType, dst, src []byte, stream bool, sum uint32) uint32 {
	return dequantizeSumGo(dt, dst, src, sum)
}

func (k kernel) copy(dst, src []byte, stream bool) { copy(dst, src) }

func (k kernel) copySum(dst, src []byte, stream bool, sum uint32) uint32 {
	return copySumGo(dst, src, sum)
}

func (k kernel) transpose(size int, dst, src []byte, dstStride, srcStride, dstStep, srcStep, squares int) bool {
	return false
}

func (k kernel) split(dst, src []byte, b, size int) { splitGo(dst, src, b, size) }
func (k kernel) merge(dst, src []byte, b, size int) { mergeGo(dst, src, b, size) }

// quantizeQ4R is [quantizeQ4RGo] that goes on with the largest error so far.
func (k kernel) quantizeQ4R(dt kv.DType, dst, src []byte, worst float32) (exceptions uint64, newWorst float32) {
	exceptions, newWorst = quantizeQ4RGo(dt, dst, src)
	return exceptions, max(worst, newWorst)
}

// dequantizeQ4R is [dequantizeQ4RGo].
func (k kernel) dequantizeQ4R(dt kv.DType, dst, src []byte, stream bool) {
	dequantizeQ4RGo(dt, dst, src)
}

// dequantizeSumQ4R is dequantizeQ4R that goes on with the CRC32C of src.
func (k kernel) dequantizeSumQ4R(dt kv.DType, dst, src []byte, stream bool, sum uint32) uint32 {
	return dequantizeSumQ4RGo(dt, dst, src, sum)
}
