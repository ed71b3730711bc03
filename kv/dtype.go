package kv

import "fmt"

// DType is the element type of a tensor in the caller's memory. The numbers are stored; they never change.
type DType uint8

// Element types. Q8_0 and the other block types are a runtime's own quantized caches, kept byte for byte.
const (
	Bytes DType = iota + 1 // opaque bytes; Width counts bytes
	F32
	F16
	BF16
	Q8_0 // ggml block_q8_0: 32 values in 34 bytes
	Q4_0 // ggml block_q4_0: 32 values in 18 bytes
	Q4_1 // ggml block_q4_1: 32 values in 20 bytes
	Q5_0 // ggml block_q5_0: 32 values in 22 bytes
	Q5_1 // ggml block_q5_1: 32 values in 24 bytes
	dtypeEnd
)

type dtypeInfo struct {
	name         string
	group, bytes int // a group of so many values takes so many bytes
}

var dtypes = [dtypeEnd]dtypeInfo{
	Bytes: {"bytes", 1, 1},
	F32:   {"f32", 1, 4},
	F16:   {"f16", 1, 2},
	BF16:  {"bf16", 1, 2},
	Q8_0:  {"q8_0", 32, 34},
	Q4_0:  {"q4_0", 32, 18},
	Q4_1:  {"q4_1", 32, 20},
	Q5_0:  {"q5_0", 32, 22},
	Q5_1:  {"q5_1", 32, 24},
}

// Valid reports whether d is a known element type.
func (d DType) Valid() bool { return d > 0 && d < dtypeEnd }

func (d DType) String() string {
	if !d.Valid() {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}

// Group is the number of values that are stored together: 1, or 32 for ggml's block types.
func (d DType) Group() int { return dtypes[d].group }

// GroupBytes is the size of one group in bytes. For types of group 1 it is the element size.
func (d DType) GroupBytes() int { return dtypes[d].bytes }

// IsFloat reports whether values of d can be quantized: f32, f16 or bf16.
func (d DType) IsFloat() bool { return d == F32 || d == F16 || d == BF16 }

// RowBytes is the size of a row of width values.
func (d DType) RowBytes(width int) int { return width / dtypes[d].group * dtypes[d].bytes }
