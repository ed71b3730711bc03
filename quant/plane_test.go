package quant

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// raceEnabled says that the race detector watches.
var raceEnabled = func() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}()

func mustEncode(t rapid.TB, c Codec, comp Compression, tensor kv.Tensor, src kv.TensorRows, exact int) ([]byte, Plane) {
	t.Helper()
	stored, p, err := Encode(nil, c, comp, tensor, src, exact)
	if err != nil {
		t.Fatal(err)
	}
	return stored, p
}

func mustDecode(t rapid.TB, tensor kv.Tensor, p Plane, stored []byte, from, n int) []byte {
	t.Helper()
	out := make([]byte, n*tensor.RowBytes())
	if err := Decode(kv.Packed(0, n, out), tensor, p, stored, from); err != nil {
		t.Fatal(err)
	}
	return out
}

func drawCompression(rt *rapid.T) Compression {
	return Compression(rapid.IntRange(int(None), int(Huff0)).Draw(rt, "compression"))
}

// What each codec and layout has in common: the layout in memory changes nothing, on either side; any range of rows is
// that range of all rows; nothing else is written; stored lengths are within PlaneBytes; dst's prefix stays.
func TestPlanesDoNotDependOnLayout(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tensor := drawTensor(rt)
		codecs := slices.DeleteFunc([]Codec{Raw, Q8_0, ByteSplit, Q4R}, func(c Codec) bool { return !c.Supports(tensor) })
		c, comp := rapid.SampledFrom(codecs).Draw(rt, "codec"), drawCompression(rt)
		rows := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(60, 140)).Draw(rt, "rows")
		exact := rapid.IntRange(-1, 5).Draw(rt, "exact rows")
		packed := drawRows(rt, tensor, rows)
		stored, p := mustEncode(rt, c, comp, tensor, kv.Packed(0, rows, packed), exact)

		src := drawMemory(rt, tensor, rows)
		src.set(packed)
		prefix := []byte("prefix")
		again, p2, err := Encode(prefix, c, comp, tensor, src.rows, exact)
		if err != nil || !bytes.Equal(again, append(prefix, stored...)) || p2 != p {
			rt.Fatalf("from another layout: %v, %v; want %v", p2, err, p)
		}

		lo, hi, err := PlaneBytes(p, tensor)
		if n := uint64(len(stored)); err != nil || n < lo || n > hi {
			rt.Fatalf("%d bytes stored, PlaneBytes says %d to %d, %v", n, lo, hi, err)
		}
		if p.Compression != None {
			plain, q := mustEncode(rt, c, None, tensor, kv.Packed(0, rows, packed), exact)
			if q.MaxError != p.MaxError || len(stored)*100 > len(plain)*95 {
				rt.Fatalf("compressed from %d to %d bytes, %v", len(plain), len(stored), p)
			}
		}

		all := mustDecode(rt, tensor, p, stored, 0, rows)
		from := rapid.IntRange(0, rows).Draw(rt, "from")
		n := rapid.IntRange(0, rows-from).Draw(rt, "count")
		dst := drawMemory(rt, tensor, n)
		if err := Decode(dst.rows, tensor, p, stored, from); err != nil {
			rt.Fatal(err)
		}
		row := tensor.RowBytes()
		if !bytes.Equal(dst.get(), all[from*row:(from+n)*row]) {
			rt.Fatalf("rows %d to %d differ from the whole plane's", from, from+n)
		}
		if dst.touched() {
			rt.Fatal("wrote outside of the rows")
		}
		if !c.inGroups() && !bytes.Equal(all, packed) {
			rt.Fatalf("%s does not give back what it was given", c)
		}
	})
}

// Pieces of several tiles in both directions, transposed.
func TestTallChannelMajorPieces(t *testing.T) {
	const rows, width = 3*64 + 5, 192
	for _, dt := range []kv.DType{kv.Bytes, kv.F16, kv.F32} {
		tensor := kv.Tensor{Role: kv.RoleV, DType: dt, Width: width}
		size := dt.GroupBytes()
		packed := normalRows(kv.F32, rows, width, 1)[:rows*tensor.RowBytes()]
		m := memory{tensor, kv.TensorRows{Pieces: []kv.Piece{{
			Mem: make([]byte, rows*width*size), Count: rows, RowStride: size, ElemStride: rows * size,
		}}}}
		m.set(packed)
		for _, c := range []Codec{Raw, Q8_0, ByteSplit, Q4R} {
			if !c.Supports(tensor) {
				continue
			}
			want, p := mustEncode(t, c, None, tensor, kv.Packed(0, rows, packed), 0)
			if got, _ := mustEncode(t, c, None, tensor, m.rows, 0); !bytes.Equal(got, want) {
				t.Errorf("%s %s: encoded differently", dt, c)
			}
			if err := Decode(m.rows, tensor, p, want, 0); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(m.get(), mustDecode(t, tensor, p, want, 0, rows)) {
				t.Errorf("%s %s: decoded differently", dt, c)
			}
			m.set(packed)
		}
	}
}

// A state has any length, and exactly that memory is asked for.
func TestStatesOfAnyLength(t *testing.T) {
	tensor := kv.Tensor{Role: kv.RoleState, DType: kv.Bytes}
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.SampledFrom([]int{0, 1, 7, 1000, 200_000, 300_001}).Draw(rt, "bytes")
		state := bytes.Repeat([]byte("recurrent state "), n/16+1)[:n]
		stored, p := mustEncode(rt, Raw, drawCompression(rt), tensor, kv.Packed(5, 1, state), 4)
		if got, err := StateBytes(p, tensor, stored); err != nil || got != int64(n) {
			rt.Fatalf("StateBytes is %d, %v, want %d", got, err, n)
		}
		out := bytes.Repeat([]byte{canary}, n+1)
		if err := Decode(kv.Packed(5, 1, out), tensor, p, stored, 0); !errors.Is(err, kv.ErrRows) {
			rt.Fatalf("into memory that is too long: %v", err)
		}
		if err := Decode(kv.Packed(5, 1, out[:n]), tensor, p, stored, 0); err != nil || !bytes.Equal(out[:n], state) || out[n] != canary {
			rt.Fatalf("state differs: %v", err)
		}
		if err := Decode(kv.TensorRows{}, tensor, p, stored, 0); err != nil {
			rt.Fatalf("asking for nothing: %v", err)
		}
	})
}

// Large planes go through several huff0 chunks, of all three modes.
func TestPlanesOfManyChunks(t *testing.T) {
	tensor := kv.Tensor{Role: kv.RoleV, DType: kv.F32, Width: 2048}
	const rows = 200 // 409,600 elements: 4 chunks
	src := normalRows(kv.F32, rows, tensor.Width, 1)
	clear(src[:len(src)/2]) // modeRepeats, and one chunk that is half zeros
	for _, c := range []Codec{Raw, ByteSplit} {
		for comp := None; comp.Valid(); comp++ {
			stored, p := mustEncode(t, c, comp, tensor, kv.Packed(0, rows, src), 0)
			if !bytes.Equal(mustDecode(t, tensor, p, stored, 0, rows), src) {
				t.Fatalf("%v: differs", p)
			}
			if got := mustDecode(t, tensor, p, stored, 63, 2); !bytes.Equal(got, src[63*8192:65*8192]) {
				t.Fatalf("%v: rows 63 and 64 differ", p)
			}
		}
	}
}

// A plane that compression makes 3 % smaller is kept as it is; at 6 % it is kept compressed.
func TestCompressionMustSaveFivePercent(t *testing.T) {
	noise := make([]byte, 32*chunkBytes)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	tensor := kv.Tensor{DType: kv.Bytes, Width: chunkBytes}
	for comp := Zstd; comp.Valid(); comp++ {
		for zeros, want := range map[int]Compression{0: None, 1: None, 2: comp, 32: comp} { // of 32 chunks
			src := bytes.Clone(noise)
			clear(src[:zeros*chunkBytes])
			stored, p := mustEncode(t, Raw, comp, tensor, kv.Packed(0, 32, src), 0)
			if p.Compression != want || want == None && !bytes.Equal(stored, src) {
				t.Errorf("%d of 32 chunks are zeros: %s makes %d of %d bytes, stored as %s", zeros, comp, len(stored), len(src), p.Compression)
			}
		}
	}
}

// A buffer of MaxEncodedBytes is never outgrown by ordinary values.
func TestMaxEncodedBytes(t *testing.T) {
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
		tensor := kv.Tensor{DType: dt, Width: 192}
		for _, c := range []Codec{Raw, Q8_0, ByteSplit, Q4R} {
			for _, exact := range []int{0, 4, 100} {
				n := MaxEncodedBytes(c, tensor, 33, exact)
				src := normalRows(dt, 33, 192, 5)
				stored, _ := mustEncode(t, c, None, tensor, kv.Packed(0, 33, src), exact)
				if len(stored) > n || c != ByteSplit && len(stored) < n-2 {
					t.Errorf("%s %s, %d exact rows: %d bytes, planned %d", dt, c, exact, len(stored), n)
				}
			}
		}
	}
	if n := MaxEncodedBytes(Q8_0, kv.Tensor{DType: kv.F16, Width: 33}, 1, 0); n != 0 {
		t.Errorf("%d bytes for a tensor that the codec cannot hold", n)
	}
}

// Nothing is allocated on the way to and from Raw, Q8_0 and Q4R planes, strides and exceptions or not.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("SKIPPED: the race detector makes pools forget what was put back")
	}
	const rows, width = 32, 64
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
		tensor := kv.Tensor{DType: dt, Width: width}
		size := dt.GroupBytes()
		mem := normalRows(dt, rows, width, 9)
		copy(mem[len(mem)-size:], bytes.Repeat([]byte{0xff}, size)) // a NaN
		for name, piece := range map[string]kv.Piece{
			"packed":        {Mem: mem, Count: rows},
			"row gaps":      {Mem: mem, Count: rows / 2, RowStride: 2 * width * size},
			"channel-major": {Mem: mem, Count: rows, RowStride: size, ElemStride: rows * size},
		} {
			src := kv.TensorRows{Pieces: []kv.Piece{piece}}
			for _, c := range []Codec{Raw, Q8_0, Q4R} {
				stored, p := mustEncode(t, c, None, tensor, src, 2)
				if n := testing.AllocsPerRun(20, func() { stored, p, _ = Encode(stored[:0], c, None, tensor, src, 2) }); n > 0 {
					t.Errorf("encoding %s %s %s: %g allocations", dt, name, c, n)
				}
				if n := testing.AllocsPerRun(20, func() { _ = Decode(src, tensor, p, stored, 0) }); n > 0 {
					t.Errorf("decoding %s %s %s: %g allocations", dt, name, c, n)
				}
			}
		}
	}
}
