package quant

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
)

// withKernels runs fn with every kernel of this CPU in use.
func withKernels(fn func(k kernel)) {
	defer func(k kernel) { active = k }(active)
	for _, k := range kernels() {
		active = k
		fn(k)
	}
}

// DecodeVerified gives what Decode gives if the checksum is right, with every kernel, layout and way of storing; and never
// accepts other bytes, in rows that are asked for or not. EncodeSummed gives what Encode gives, and its checksum.
func TestVerifiedIsDecode(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tensor := drawTensor(rt)
		codecs := slices.DeleteFunc([]Codec{Raw, Q8_0, Q8_0, ByteSplit, Q4R}, func(c Codec) bool { return !c.Supports(tensor) })
		c := rapid.SampledFrom(codecs).Draw(rt, "codec")
		comp := None
		if rapid.IntRange(0, 3).Draw(rt, "compressed") == 3 {
			comp = drawCompression(rt)
		}
		rows := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(60, 140)).Draw(rt, "rows")
		exact := rapid.IntRange(-1, 5).Draw(rt, "exact rows")
		from := rapid.IntRange(0, rows).Draw(rt, "from")
		n := rapid.IntRange(0, rows-from).Draw(rt, "count")
		src, dst := drawMemory(rt, tensor, rows), drawMemory(rt, tensor, n)
		src.set(drawRows(rt, tensor, rows))
		o := DecodeOptions{Bytes: rapid.SampledFrom([]int64{0, StreamBytes}).Draw(rt, "bytes")}
		bad := rapid.Uint32().Draw(rt, "damaged byte")

		var stored, want []byte
		var p Plane
		withKernels(func(k kernel) {
			out, q, sum, err := EncodeSummed([]byte("prefix"), c, comp, tensor, src.rows, exact)
			if err != nil || sum != updateSum(0, out[len("prefix"):]) {
				rt.Fatalf("%s: encoding: checksum %08x, %v", k, sum, err)
			}
			plain, q2, err := Encode(nil, c, comp, tensor, src.rows, exact)
			if err != nil || q2 != q || !bytes.Equal(plain, out[len("prefix"):]) {
				rt.Fatalf("%s: Encode and EncodeSummed differ: %v and %v, %v", k, q2, q, err)
			}
			if k == kernels()[0] {
				stored, p, want = plain, q, mustDecode(rt, tensor, q, plain, from, n)
			} else if q != p || !bytes.Equal(plain, stored) {
				rt.Fatalf("%s encodes differently: %v, want %v", k, q, p)
			}
			if err := DecodeVerified(dst.rows, tensor, p, stored, from, sum, o); err != nil {
				rt.Fatalf("%s: %v", k, err)
			}
			if !bytes.Equal(dst.get(), want) {
				rt.Fatalf("%s: rows %d to %d are wrong", k, from, from+n)
			}
			if dst.touched() {
				rt.Fatalf("%s wrote outside of the rows", k)
			}
			check := func(what string, err error) {
				var e *damage.Error
				if !errors.Is(err, ErrChecksum) || !errors.Is(err, damage.ErrCorrupt) || !errors.As(err, &e) || e.Expected != fmt.Sprintf("checksum %08x", sum) {
					rt.Fatalf("%s: %s: %v", k, what, err)
				}
			}
			if len(stored) > 0 {
				rotten := bytes.Clone(stored)
				rotten[bad%uint32(len(rotten))] ^= byte(1 << (bad >> 29))
				check("damaged byte", DecodeVerified(dst.rows, tensor, p, rotten, from, sum, o))
				check("missing byte", DecodeVerified(dst.rows, tensor, p, stored[1:], from, sum, o))
			}
		})
	})
}

// A state of any length is verified too, and one that does not fit is the caller's mistake.
func TestVerifiedStates(t *testing.T) {
	tensor := kv.Tensor{Role: kv.RoleState, DType: kv.Bytes}
	for _, size := range []int{0, 1, 63, 400, 5000} {
		state := bytes.Repeat([]byte{1, 2, 3, 4, 5}, size/5+1)[:size]
		stored, p, sum, err := EncodeSummed(nil, Raw, None, tensor, kv.Packed(0, 1, state), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []DecodeOptions{{}, {Bytes: StreamBytes}} {
			out := make([]byte, size)
			if err := DecodeVerified(kv.Packed(0, 1, out), tensor, p, stored, 0, sum, o); err != nil || !bytes.Equal(out, state) {
				t.Errorf("%d bytes: %v", size, err)
			}
			if err := DecodeVerified(kv.TensorRows{}, tensor, p, stored, 0, sum^1, o); !errors.Is(err, ErrChecksum) {
				t.Errorf("%d bytes, no rows, wrong checksum: %v", size, err)
			}
			if err := DecodeVerified(kv.Packed(0, 1, make([]byte, size+1)), tensor, p, stored, 0, sum, o); !errors.Is(err, kv.ErrRows) {
				t.Errorf("%d bytes of memory for %d: %v", size+1, size, err)
			}
		}
	}
}

func TestVerifiedAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("SKIPPED: the race detector makes pools forget what was put back")
	}
	const rows, width = 32, 1024
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
		tensor := kv.Tensor{DType: dt, Width: width}
		size := dt.GroupBytes()
		mem := normalRows(dt, rows, width, 9)
		for name, piece := range map[string]kv.Piece{
			"packed":        {Mem: mem, Count: rows},
			"row gaps":      {Mem: mem, Count: rows / 2, RowStride: 2 * width * size},
			"channel-major": {Mem: mem, Count: rows, RowStride: size, ElemStride: rows * size},
		} {
			src := kv.TensorRows{Pieces: []kv.Piece{piece}}
			for _, c := range []Codec{Raw, Q8_0, Q4R} {
				stored, p, sum, err := EncodeSummed(nil, c, None, tensor, src, 2)
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range []DecodeOptions{{}, {Bytes: StreamBytes}} {
					if n := testing.AllocsPerRun(20, func() { err = DecodeVerified(src, tensor, p, stored, 0, sum, o) }); n > 0 || err != nil {
						t.Errorf("decoding %s %s %s: %g allocations, %v", dt, name, c, n, err)
					}
				}
				if n := testing.AllocsPerRun(20, func() { stored, p, sum, _ = EncodeSummed(stored[:0], c, None, tensor, src, 2) }); n > 0 {
					t.Errorf("encoding %s %s %s: %g allocations", dt, name, c, n)
				}
			}
		}
	}
}

// A caller that writes to its rows while they are encoded gets a mixture, but never a plane whose checksum is not that of its bytes, or
// that cannot be decoded: its mistake is not taken for damage of the disk.
func TestRowsThatChange(t *testing.T) {
	if raceEnabled {
		t.Skip("SKIPPED: it is a race, which the detector would name")
	}
	const rows, width = 512, 256
	for _, x := range []struct {
		codec  Codec
		comp   Compression
		tensor kv.Tensor
	}{
		{Raw, None, kv.Tensor{Role: kv.RoleK, DType: kv.F16, Width: width}},
		{Raw, S2, kv.Tensor{Role: kv.RoleK, DType: kv.F16, Width: width}},
		{Q8_0, None, kv.Tensor{Role: kv.RoleK, DType: kv.F16, Width: width}},
		{Q8_0, None, kv.Tensor{Role: kv.RoleK, DType: kv.F32, Width: width}},
		{Q8_0, Huff0, kv.Tensor{Role: kv.RoleK, DType: kv.BF16, Width: width}},
		{Q4R, None, kv.Tensor{Role: kv.RoleV, DType: kv.F16, Width: width}},
		{Q4R, S2, kv.Tensor{Role: kv.RoleV, DType: kv.F32, Width: width}},
		{ByteSplit, None, kv.Tensor{Role: kv.RoleK, DType: kv.F32, Width: width}},
		{Raw, None, kv.Tensor{Role: kv.RoleState, DType: kv.Bytes}},
	} {
		row := width * 4
		if x.tensor.Width > 0 {
			row = x.tensor.RowBytes()
		}
		mem := make([]byte, rows*(row+64))
		src := kv.Packed(0, rows, mem[:rows*row])
		if x.tensor.Width == 0 {
			src = kv.Packed(0, 1, mem)
		}
		apart := src // rows that do not follow one another
		if x.tensor.Width > 0 {
			apart = kv.TensorRows{Pieces: []kv.Piece{{Mem: mem, Count: rows, RowStride: row + 64}}}
		}
		stop := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() {
			r := rand.New(rand.NewPCG(1, 2))
			for {
				select {
				case <-stop:
					return
				default:
				}
				for range 1000 {
					mem[r.IntN(len(mem))] = byte(r.Uint32())
				}
			}
		})
		bad := 0
		for i := range 60 {
			rows := src
			if i%2 == 1 {
				rows = apart
			}
			out, p, sum, err := EncodeSummed(nil, x.codec, x.comp, x.tensor, rows, 4)
			if err != nil {
				t.Fatal(err)
			}
			dst := kv.Packed(0, p.Rows, make([]byte, len(mem)))
			if x.tensor.Width > 0 {
				dst = kv.Packed(0, p.Rows, make([]byte, p.Rows*row))
			}
			if err := DecodeVerified(dst, x.tensor, p, out, 0, sum, DecodeOptions{}); err != nil {
				if bad++; bad == 1 {
					t.Errorf("%s %s of %s: %v", x.codec, x.comp, x.tensor.DType, err)
				}
			}
		}
		close(stop)
		writer.Wait()
	}
}
