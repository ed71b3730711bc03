package quant

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// readGolden returns a golden file, after rewriting it with got if -update is given.
func readGolden(t *testing.T, name, got string) string {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(want), "\r\n", "\n")
}

// goldenGroups are groups in which every rule of the quantizer shows; zeros follow the values named here.
var goldenGroups = []struct {
	name string
	x    []float32
}{
	{"zeros", nil},
	{"zeros of both signs", []float32{0, float32(math.Copysign(0, -1))}},
	{"scale 1: halves go away from zero", []float32{127, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 126.5, -126.5, 0.49999997, -0.49999997, 1.4999999, 2.4999998}},
	{"both ends", []float32{1, -1}},
	{"ramp", []float32{-4, -3.5, -3, -2.5, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 3.75}},
	{"1/d is not 1/f16(d)", []float32{1000, 500.5, 333.333, -250.25, 3.94, 11.82}},
	{"largest f16", []float32{65504, -65504, 32752}},
	{"scale rounds to the least normal f16", []float32{0.0077515, 0.001}},
	{"scale is subnormal", []float32{0.0077, -0.0077, 0.00001}},
	{"scale is the least subnormal", []float32{5e-6, -2e-6}},
	{"scale underflows to zero", []float32{1e-7, -1e-7}},
	{"scale overflows to infinity", []float32{1e30, -1e30, 5e29}},
	{"1/d overflows", []float32{1e-38, -1e-38}},
}

// Blocks as ggml's reference quantizer writes them: ggml_test.go compares the same groups with the library.
func TestGoldenBlocks(t *testing.T) {
	var got strings.Builder
	for _, c := range goldenGroups {
		var x [groupValues]float32
		copy(x[:], c.x)
		var block [blockBytes]byte
		mask, maxError := active.quantize(kv.F32, block[:], elements(kv.F32, x[:]...), 0)
		fmt.Fprintf(&got, "%s\n  x %v\n  exception %t, max error %g\n  %x\n", c.name, c.x, mask == 1, maxError, block)
	}
	if want := readGolden(t, "blocks", got.String()); got.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
}

// Planes of every codec, compression and type. Raw and Q8_0 must be written like that; a compressor may write other
// bytes one day, so there the golden ones must be read.
func TestGoldenPlanes(t *testing.T) {
	golden := map[string]string{} // by heading
	var all strings.Builder
	type plane struct {
		tensor kv.Tensor
		p      Plane
		src    []byte
		stored []byte
	}
	planes := map[string]plane{}
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32, kv.Q8_0} {
		tensor := kv.Tensor{Role: kv.RoleK, DType: dt, Width: 96}
		src := make([]byte, 3*tensor.RowBytes())
		if dt.IsFloat() {
			for i, v := range values(kv.F32, make([]byte, 4*3*96)) {
				v = float32((i*i*7)%61-30) / 8
				if i >= 96 && i < 224 {
					v = float32(i%3) / 4
				}
				copy(src[i*dt.GroupBytes():], elements(dt, v))
			}
			copy(src[200*dt.GroupBytes():], bytes.Repeat([]byte{0xff}, dt.GroupBytes())) // a NaN, in group 6
		}
		for _, c := range []Codec{Raw, Q8_0, ByteSplit, Q4R} {
			for comp := None; comp.Valid() && c.Supports(tensor); comp++ {
				if c == ByteSplit && comp != None {
					break
				}
				stored, p := mustEncode(t, c, comp, tensor, kv.Packed(0, 3, src), 1)
				if p.Compression == comp {
					heading := fmt.Sprintf("%s: %v", dt, p)
					planes[heading] = plane{tensor, p, src, stored}
					fmt.Fprintf(&all, "%s\n%s\n", heading, hex.Dump(stored))
				}
			}
		}
	}
	for _, part := range strings.Split(strings.TrimSpace(readGolden(t, "planes", all.String())), "\n\n") {
		heading, dump, _ := strings.Cut(part, "\n")
		golden[heading] = dump
	}
	for heading, pl := range planes {
		dump, ok := golden[heading]
		if !ok {
			t.Errorf("%s: not in the golden file", heading)
			continue
		}
		want := undump(t, dump)
		if (pl.p.Codec == Raw || pl.p.Codec == Q8_0) && pl.p.Compression == None && !bytes.Equal(pl.stored, want) {
			t.Errorf("%s: stored\n%s\nwant\n%s", heading, hex.Dump(pl.stored), dump)
		}
		out := mustDecode(t, pl.tensor, pl.p, want, 0, 3)
		if again := mustDecode(t, pl.tensor, pl.p, pl.stored, 0, 3); !bytes.Equal(out, again) {
			t.Errorf("%s: the golden bytes decode to other rows", heading)
		}
		if !pl.p.Codec.inGroups() && !bytes.Equal(out, pl.src) {
			t.Errorf("%s: does not give back what it was given", heading)
		}
	}
	if len(golden) != len(planes) {
		t.Errorf("%d planes in the golden file, %d here", len(golden), len(planes))
	}
}

// undump reads what hex.Dump prints.
func undump(t *testing.T, dump string) (out []byte) {
	t.Helper()
	for line := range strings.Lines(dump) {
		digits, _, _ := strings.Cut(line[min(10, len(line)):], "|")
		b, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

// Blocks as they are written for good: a release that writes or reads them differently is another codec.
func TestGoldenQ4R(t *testing.T) {
	ramp := make([]float32, groupValuesQ4R)
	outlier := make([]float32, groupValuesQ4R)
	for j := range ramp {
		ramp[j] = float32(j)/8 - 3
		outlier[j] = float32(j*j*7%61-30) / 64
	}
	outlier[21] = 40
	var all strings.Builder
	for _, c := range []struct {
		name string
		x    []float32
	}{
		{"zeros", nil},
		{"zeros of both signs", []float32{0, float32(math.Copysign(0, -1))}},
		{"one", []float32{1}},
		{"one at place 41", append(make([]float32, 41), 1)},
		{"the same everywhere", slices.Repeat([]float32{-1.25}, groupValuesQ4R)},
		{"ramp", ramp},
		{"an outlier", outlier},
		{"the largest", []float32{2048, -2048, 1000}},
		{"larger", []float32{2050}},
		{"scale is the least normal f16", []float32{0.00183, 0.0001}},
		{"scale is subnormal", []float32{0.0018, 0.0001}},
	} {
		var x [groupValuesQ4R]float32
		copy(x[:], c.x)
		var block [blockBytesQ4R]byte
		mask, maxError := active.quantizeQ4R(kv.F32, block[:], elements(kv.F32, x[:]...), 0)
		fmt.Fprintf(&all, "%s\n  x %v\n  exception %t, max error %g\n  %x\n", c.name, c.x, mask == 1, maxError, block)
		for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
			out := make([]byte, dt.RowBytes(groupValuesQ4R))
			active.dequantizeQ4R(dt, out, block[:], false)
			fmt.Fprintf(&all, "  %s %x\n", dt, out)
		}
	}
	tensor := kv.Tensor{Role: kv.RoleV, DType: kv.F16, Width: 128}
	src := normalRows(kv.F16, 3, 128, 21)
	copy(src[2*(2*128+70):], []byte{0xff, 0xff}) // a NaN in group 5
	stored, p := mustEncode(t, Q4R, None, tensor, kv.Packed(0, 3, src), 1)
	fmt.Fprintf(&all, "plane: %v\n%s", p, hex.Dump(stored))
	if want := readGolden(t, "q4r", all.String()); all.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", all.String(), want)
	}
}
