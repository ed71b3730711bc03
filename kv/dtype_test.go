package kv_test

import (
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// Numbers, sizes and names of element types are stored or shown: ggml's blocks are a scale of f16 (and for the _1 types
// a minimum, for the 5-bit types 32 high bits) and 32 values.
func TestDTypes(t *testing.T) {
	for _, c := range []struct {
		dtype        kv.DType
		number       uint8
		name         string
		group, bytes int
		float        bool
	}{
		{kv.Bytes, 1, "bytes", 1, 1, false},
		{kv.F32, 2, "f32", 1, 4, true},
		{kv.F16, 3, "f16", 1, 2, true},
		{kv.BF16, 4, "bf16", 1, 2, true},
		{kv.Q8_0, 5, "q8_0", 32, 2 + 32, false},
		{kv.Q4_0, 6, "q4_0", 32, 2 + 16, false},
		{kv.Q4_1, 7, "q4_1", 32, 2 + 2 + 16, false},
		{kv.Q5_0, 8, "q5_0", 32, 2 + 4 + 16, false},
		{kv.Q5_1, 9, "q5_1", 32, 2 + 2 + 4 + 16, false},
	} {
		d := c.dtype
		if uint8(d) != c.number || d.String() != c.name || d.Group() != c.group || d.GroupBytes() != c.bytes || d.IsFloat() != c.float || !d.Valid() {
			t.Errorf("%s is %d: %d values in %d bytes, float %v", d, d, d.Group(), d.GroupBytes(), d.IsFloat())
		}
		if d.RowBytes(0) != 0 || d.RowBytes(96*c.group) != 96*c.bytes {
			t.Errorf("%s: a row of %d values has %d bytes", d, 96*c.group, d.RowBytes(96*c.group))
		}
	}
	for _, d := range []kv.DType{0, 10, 255} {
		if d.Valid() || d.IsFloat() {
			t.Errorf("%s is valid", d)
		}
	}
	if got := kv.DType(77).String(); got != "dtype(77)" {
		t.Error(got)
	}
}

// The numbers of group kinds and roles are stored too.
func TestStoredNumbers(t *testing.T) {
	for name, c := range map[string]struct{ got, want uint8 }{
		"all": {uint8(kv.All), 1}, "window": {uint8(kv.Window), 2}, "state": {uint8(kv.StateAt), 3},
	} {
		if c.got != c.want || kv.GroupKind(c.got).String() != name {
			t.Errorf("%s is %d (%s)", name, c.got, kv.GroupKind(c.got))
		}
	}
	for name, c := range map[string]struct{ got, want uint8 }{
		"K": {uint8(kv.RoleK), 1}, "V": {uint8(kv.RoleV), 2}, "state": {uint8(kv.RoleState), 3},
	} {
		if c.got != c.want || kv.Role(c.got).String() != name {
			t.Errorf("%s is %d (%s)", name, c.got, kv.Role(c.got))
		}
	}
	for got, want := range map[string]string{
		kv.Group{Kind: kv.Window, Window: 512}.String(): "window(512)",
		kv.Group{Kind: kv.StateAt}.String():             "state",
		kv.GroupKind(9).String():                        "group(9)",
		kv.Role(9).String():                             "role(9)",
		kv.Tensor{Layer: 3, Role: kv.RoleV}.String():    "layer 3 V",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
