package quant

import (
	"bytes"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/fuzzkit"
	"github.com/dormousekv/dormouse/kv"
)

// FuzzDecode takes everything that comes from a file, the plane's description and its bytes, as arbitrary. Whatever
// they are, decoding returns, its error is of a known kind, only the rows' own bytes are written, and nothing is allocated
// but what the plane's rows take. Plain Go decodes the same bits, and so does the decoder that verifies on the way, which
// refuses another checksum.
func FuzzDecode(f *testing.F) {
	var seeds [][]any
	add := func(dt kv.DType, width int, c Codec, comp Compression, rows, exact int) {
		t := kv.Tensor{DType: dt, Width: width}
		if width == 0 {
			stored, p, err := Encode(nil, c, comp, t, kv.Packed(0, 1, bytes.Repeat([]byte("state"), 100)), 0)
			if err != nil {
				f.Fatal(err)
			}
			seeds = append(seeds, []any{uint8(dt), uint16(0), uint8(p.Codec), uint8(p.Compression), uint16(1), uint32(0), uint16(0), uint16(1), uint8(0), stored})
			return
		}
		src := make([]byte, rows*t.RowBytes())
		if dt.IsFloat() {
			src = normalRows(dt, rows, width, 1)
		}
		clear(src[len(src)/2:])
		stored, p, err := Encode(nil, c, comp, t, kv.Packed(0, rows, src), exact)
		if err != nil {
			f.Fatal(err)
		}
		layout := uint8(len(seeds)) % 4
		seeds = append(seeds, []any{uint8(dt), uint16(width), uint8(p.Codec), uint8(p.Compression), uint16(p.Rows), p.Exceptions, uint16(layout), uint16(rows) - uint16(layout), layout, stored})
	}
	for comp := None; comp.Valid(); comp++ {
		add(kv.F16, 32, Raw, comp, 4, 0)
		add(kv.F16, 32, Q8_0, comp, 8, 1)
		add(kv.F16, 32, ByteSplit, comp, 4, 0)
	}
	for _, dt := range []kv.DType{kv.BF16, kv.F32} {
		add(dt, 32, Q8_0, None, 2, 1)
		add(dt, 32, ByteSplit, None, 3, 0)
	}
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
		add(dt, 128, Q4R, None, 3, 1)
		add(dt, 64, Q4R, S2, 8, 0)
	}
	add(kv.BF16, 32, Q8_0, None, 60, 0) // in one piece: whole turns of the kernels
	seeds[len(seeds)-1][8] = uint8(128)
	add(kv.Q4_0, 64, Raw, Zstd, 20, 0)
	add(kv.Bytes, 0, Raw, None, 1, 0)
	add(kv.Bytes, 0, Raw, Huff0, 1, 0)
	// Streams that claim to hold more than there is.
	far := []byte("\x00\x00\x00\x40\x00\x00\x00\x00\x28\xb5\x2f\xfd\xe0\x00\x00\x00\x40\x00\x00\x00\x00\x01\x00\x00")
	for comp := Zstd; comp.Valid(); comp++ {
		seeds = append(seeds, []any{uint8(kv.Bytes), uint16(0), uint8(Raw), uint8(comp), uint16(1), uint32(0), uint16(0), uint16(1), uint8(0), far},
			[]any{uint8(kv.F32), uint16(256), uint8(Raw), uint8(comp), uint16(512), uint32(0), uint16(0), uint16(1), uint8(0), far})
	}
	fuzzkit.Seeds(f, seeds...)

	f.Fuzz(func(t *testing.T, dtype uint8, width uint16, codec, comp uint8, rows uint16, exceptions uint32, from, count uint16, layout uint8, stored []byte) {
		rows %= kv.MaxBlockTokens + 2
		tensor := kv.Tensor{DType: kv.DType(dtype), Width: int(width) % 300}
		p := Plane{Codec: Codec(codec), Compression: Compression(comp), Rows: int(rows), Exceptions: exceptions}
		_, _, _ = PlaneBytes(p, tensor)
		_, _ = Codes(p, tensor, stored)
		n, err := StateBytes(p, tensor, stored)
		if !Raw.Supports(tensor) {
			if err == nil {
				t.Fatalf("a plane of %s rows of %d values", tensor.DType, tensor.Width)
			}
			return
		}

		var dst kv.TensorRows
		var mem []byte
		if tensor.Width == 0 {
			if err != nil || n > 1<<20 {
				n = 100
			}
			mem = bytes.Repeat([]byte{canary}, int(n)+64)
			dst = kv.Packed(0, 1, mem[:n:n])
		} else {
			count %= 100
			row, elem, elems := tensor.RowBytes(), tensor.DType.GroupBytes(), tensor.Width/tensor.DType.Group()
			switch { // packed, row gaps, element gaps, channel-major
			case layout%4 == 1:
				row += 3
			case layout%4 == 2 && tensor.DType.Group() == 1:
				elem++
				row = elems * elem
			case layout%4 == 3 && tensor.DType.Group() == 1:
				row, elem = elem, elem*max(int(count), 1)
			}
			mem = bytes.Repeat([]byte{canary}, int(count)*max(row, elem*elems)+64)
			dst = kv.TensorRows{Pieces: []kv.Piece{
				{Mem: mem, Count: int(count) / 2, RowStride: row, ElemStride: elem},
				{Mem: mem[int(count)/2*row:], Count: int(count) - int(count)/2, RowStride: row, ElemStride: elem},
			}}
			if layout >= 128 { // one piece
				dst.Pieces = []kv.Piece{{Mem: mem, Count: int(count), RowStride: row, ElemStride: elem}}
			}
		}
		before := bytes.Clone(stored)
		plane := uint64(rows) * uint64(max(tensor.RowBytes(), 64)) * 2
		fuzzkit.Bounded(t, 32<<20+plane+uint64(8*len(stored)), func() { err = Decode(dst, tensor, p, stored, int(from)) })
		if err != nil && !errors.Is(err, damage.ErrCorrupt) && !errors.Is(err, ErrCodec) && !errors.Is(err, kv.ErrRows) {
			t.Fatalf("an error of no known kind: %v", err)
		}
		if !bytes.Equal(stored, before) {
			t.Fatal("changed the stored bytes")
		}
		if err == nil {
			got := bytes.Clone(mem)
			again := func(how string, decode func() error, want error) {
				for i := range mem {
					mem[i] = canary
				}
				if e := decode(); !errors.Is(e, want) {
					t.Fatalf("%s: %v, expected %v", how, e, want)
				} else if e == nil && !bytes.Equal(mem, got) {
					t.Fatalf("%s gives other bits than %s", how, Kernel())
				}
			}
			sum := updateSum(0, stored)
			again("the decoder that verifies", func() error {
				return DecodeVerified(dst, tensor, p, stored, int(from), sum, DecodeOptions{})
			}, nil)
			again("another checksum", func() error {
				return DecodeVerified(dst, tensor, p, stored, int(from), sum+1, DecodeOptions{})
			}, ErrChecksum)
			used := active
			active = kernelGo
			again("plain Go", func() error { return Decode(dst, tensor, p, stored, int(from)) }, nil)
			active = used
		}
		if tensor.Width == 0 {
			mem = mem[n:]
		} else {
			memory{tensor, dst}.each(func(e []byte) {
				for i := range e {
					e[i] = canary
				}
			})
		}
		if len(bytes.Trim(mem, string([]byte{canary}))) > 0 {
			t.Fatal("wrote outside of the rows")
		}
	})
}
