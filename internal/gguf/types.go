package gguf

import "math"

// tensorTypes are the types of tensors: so many values take so many bytes (ggml.c, type_traits). Numbers that were given up are
// missing.
var tensorTypes = map[uint32]struct{ values, bytes int64 }{
	0: {1, 4}, 1: {1, 2}, 30: {1, 2}, 24: {1, 1}, 25: {1, 2}, 26: {1, 4}, 27: {1, 8}, 28: {1, 8}, // f32, f16, bf16, i8 to i64, f64
	2: {32, 18}, 3: {32, 20}, 6: {32, 22}, 7: {32, 24}, 8: {32, 34}, 9: {32, 36}, // q4_0, q4_1, q5_0, q5_1, q8_0, q8_1
	10: {256, 84}, 11: {256, 110}, 12: {256, 144}, 13: {256, 176}, 14: {256, 210}, 15: {256, 292}, // q2_K to q6_K, q8_K
	16: {256, 66}, 17: {256, 74}, 18: {256, 98}, 19: {256, 50}, 20: {32, 18}, 21: {256, 110}, // iq2_xxs, iq2_xs, iq3_xxs, iq1_s, iq4_nl, iq3_s
	22: {256, 82}, 23: {256, 136}, 29: {256, 56}, 34: {256, 54}, 35: {256, 66}, 39: {32, 17}, // iq2_s, iq4_xs, iq1_m, tq1_0, tq2_0, mxfp4
}

// Bytes is the size of the tensor's data without padding; false for a type that is not known, and for dimensions that no file has.
func (t Tensor) Bytes() (int64, bool) {
	x, ok := tensorTypes[t.Type]
	if !ok {
		return 0, false
	}
	n := int64(1)
	for _, d := range t.Dims {
		if d < 0 || d > 0 && n > math.MaxInt64/x.bytes/d {
			return 0, false
		}
		n *= d
	}
	return n / x.values * x.bytes, true
}
