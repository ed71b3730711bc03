package quant

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

func TestNamesAreParsed(t *testing.T) {
	for c := Raw; c.Valid(); c++ {
		if got, err := ParseCodec(c.String()); got != c || err != nil {
			t.Errorf("%s: %v, %v", c, got, err)
		}
	}
	for c := None; c.Valid(); c++ {
		if got, err := ParseCompression(c.String()); got != c || err != nil {
			t.Errorf("%s: %v, %v", c, got, err)
		}
	}
	for _, name := range []string{"q8c", "", "codec(0)", "Q8_0"} {
		if c, err := ParseCodec(name); !errors.Is(err, ErrCodec) {
			t.Errorf("%q: %v, %v", name, c, err)
		}
		if c, err := ParseCompression(name); !errors.Is(err, ErrCodec) {
			t.Errorf("%q: %v, %v", name, c, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	for _, c := range []struct {
		dtype kv.DType
		width int
		want  Codec
	}{{kv.F16, 128, Q8_0}, {kv.BF16, 32, Q8_0}, {kv.F32, 96, Q8_0}, {kv.F16, 100, Raw}, {kv.Q8_0, 128, Raw}, {kv.Q4_0, 32, Raw}, {kv.Bytes, 64, Raw}, {kv.Bytes, 0, Raw}} {
		tensor := kv.Tensor{DType: c.dtype, Width: c.width}
		if got := Default(tensor); got != c.want || !got.Supports(tensor) {
			t.Errorf("%s of width %d: %s, want %s", c.dtype, c.width, got, c.want)
		}
	}
	for _, tensor := range []kv.Tensor{{}, {DType: 99, Width: 32}, {DType: kv.F16}, {DType: kv.Q8_0, Width: 33}, {DType: kv.F16, Width: -32}, {DType: kv.F32, Width: kv.MaxWidth + 32}} {
		for c := range Codec(7) {
			if c.Supports(tensor) {
				t.Errorf("%s holds %s of width %d", c, tensor.DType, tensor.Width)
			}
		}
	}
}

// What a codec is asked for is not what every tensor gets.
func TestCodecFor(t *testing.T) {
	for _, c := range []struct {
		asked Codec
		role  kv.Role
		dtype kv.DType
		width int
		want  Codec
	}{
		{0, kv.RoleV, kv.F16, 128, Q8_0}, {0, kv.RoleV, kv.F16, 100, Raw}, {Raw, kv.RoleV, kv.F16, 128, Raw}, {Q8_0, kv.RoleK, kv.F16, 100, Raw},
		{ByteSplit, kv.RoleK, kv.F16, 100, ByteSplit}, {ByteSplit, kv.RoleK, kv.Q8_0, 64, Raw},
		{Q4R, kv.RoleV, kv.F16, 128, Q4R}, {Q4R, kv.RoleV, kv.F32, 64, Q4R}, {Q4R, kv.RoleV, kv.BF16, 96, Q8_0}, {Q4R, kv.RoleV, kv.F16, 100, Raw},
		{Q4R, kv.RoleK, kv.F16, 128, Q8_0}, {Q4R, kv.RoleState, kv.F16, 128, Q8_0}, {Q4R, kv.RoleV, kv.Q4_0, 128, Raw}, {Q4R, kv.RoleK, kv.F16, 100, Raw},
	} {
		tensor := kv.Tensor{Role: c.role, DType: c.dtype, Width: c.width}
		if got := c.asked.For(tensor); got != c.want || !got.Supports(tensor) {
			t.Errorf("%s, %s of %d values: %s is asked for, %s comes, want %s", c.role, c.dtype, c.width, c.asked, got, c.want)
		}
	}
}
