package quant

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A caller that writes to its rows while they are encoded gets a mixture, but never a plane whose checksum is not that of its bytes, or
// that cannot be decoded: its mistake is not taken for damage of the disk.
func TestRowsThatChange(t *testing.T) {
	if raceEnabled {
		t.Skip("it is a race")
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
