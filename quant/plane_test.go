package quant

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
)

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
		codecs := slices.DeleteFunc([]Codec{Raw, Q8_0, ByteSplit}, func(c Codec) bool { return !c.Supports(tensor) })
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
		if c != Q8_0 && !bytes.Equal(all, packed) {
			rt.Fatalf("%s does not give back what it was given", c)
		}
	})
}

// Pieces of several tiles in both directions, transposed.
func TestTallChannelMajorPieces(t *testing.T) {
	const rows, width = 3*64 + 5, 96
	for _, dt := range []kv.DType{kv.Bytes, kv.F16, kv.F32} {
		tensor := kv.Tensor{Role: kv.RoleV, DType: dt, Width: width}
		size := dt.GroupBytes()
		packed := normalRows(kv.F32, rows, width, 1)[:rows*tensor.RowBytes()]
		m := memory{tensor, kv.TensorRows{Pieces: []kv.Piece{{
			Mem: make([]byte, rows*width*size), Count: rows, RowStride: size, ElemStride: rows * size,
		}}}}
		m.set(packed)
		for _, c := range []Codec{Raw, Q8_0, ByteSplit} {
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

// exceptionsOf reads the list that Codes leaves out.
func exceptionsOf(t rapid.TB, tensor kv.Tensor, p Plane, stored []byte) (groups []int) {
	t.Helper()
	_, exc, err := parseQ8(tensor, p, stored)
	if err != nil {
		t.Fatal(err)
	}
	for i := range exc.len() {
		groups = append(groups, int(exc.at(i)))
	}
	return groups
}

// Exceptions are exactly the groups that int8 cannot hold and the exact rows; they come back bit by bit; all other
// values come back within half a scale and the scale's own rounding; MaxError is the largest error among them.
func TestQ8KeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tensor := drawFloatTensor(rt)
		rows := rapid.IntRange(1, 40).Draw(rt, "rows")
		exact := rapid.IntRange(0, 4).Draw(rt, "exact rows")
		src := drawFloats(rt, tensor, rows)
		stored, p := mustEncode(rt, Q8_0, None, tensor, kv.Packed(0, rows, src), exact)
		out := mustDecode(rt, tensor, p, stored, 0, rows)
		codes, err := Codes(p, tensor, stored)
		if err != nil || &codes[0] != &stored[0] {
			rt.Fatalf("codes are not the first bytes of the plane: %v", err)
		}

		size := tensor.DType.RowBytes(groupValues)
		var want []int
		worst := 0.0
		for g := 0; g*size < len(src); g++ {
			in, back := src[g*size:(g+1)*size], out[g*size:(g+1)*size]
			x, y := values(tensor.DType, in), values(tensor.DType, back)
			why := refException(tensor.DType, x)
			if why != "not finite" {
				if block := refBlock(x); !bytes.Equal(block[:], codes[g*blockBytes:][:blockBytes]) {
					rt.Fatalf("group %d: codes % x, want % x", g, codes[g*blockBytes:][:blockBytes], block)
				}
			}
			if why != "" || g < exact*tensor.Width/groupValues {
				if want = append(want, g); !bytes.Equal(in, back) {
					rt.Fatalf("exception %d (%s) comes back as % x, want % x", g, why, back, in)
				}
				continue
			}
			amax := 0.0
			for _, v := range x {
				amax = math.Max(amax, math.Abs(float64(v)))
			}
			d := amax / 127
			// 127 times the scale's rounding to 11 bits, and the rounding of the result: 11, 8 or 24 bits.
			bound := d/2 + amax/(1<<11) + amax/map[kv.DType]float64{kv.F16: 1 << 11, kv.BF16: 1 << 8, kv.F32: 1 << 20}[tensor.DType]
			for j := range x {
				e := math.Abs(float64(y[j]) - float64(x[j]))
				if worst = math.Max(worst, e); e > bound {
					rt.Fatalf("group %d: %g comes back as %g, more than %g away", g, x[j], y[j], bound)
				}
			}
		}
		if got := exceptionsOf(rt, tensor, p, stored); !slices.Equal(got, want) {
			rt.Fatalf("exceptions %v, want %v", got, want)
		}
		if p.MaxError != float32(worst) {
			rt.Fatalf("MaxError is %g, the largest error %g", p.MaxError, worst)
		}
	})
}

// Rows that were restored and are stored again must not drift. In f32 no bit of the codes changes. In the 16-bit types
// the group's maximum may have been rounded, and with it, once, the scale: codes stay, and from then on all does.
func TestRequantizingDoesNotDrift(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tensor := drawFloatTensor(rt)
		rows := rapid.IntRange(1, 20).Draw(rt, "rows")
		src := drawFloats(rt, tensor, rows)
		var codes [3][]byte
		exception := map[int]bool{}
		for i := range codes {
			stored, p := mustEncode(rt, Q8_0, None, tensor, kv.Packed(0, rows, src), 0)
			codes[i], _ = Codes(p, tensor, stored)
			for _, g := range exceptionsOf(rt, tensor, p, stored) {
				exception[g] = true
			}
			src = mustDecode(rt, tensor, p, stored, 0, rows)
		}
		for g := 0; g*blockBytes < len(codes[0]); g++ {
			if exception[g] {
				continue
			}
			a, b, c := codes[0][g*blockBytes:][:blockBytes], codes[1][g*blockBytes:][:blockBytes], codes[2][g*blockBytes:][:blockBytes]
			scale := binary.LittleEndian.Uint16(a)
			// The maximum is 127 x scale: 17 or 18 bits, rounded to 11. Only a tie moves it by half a step of the scale.
			tie := tensor.DType == kv.F16 && scale&127 == 64 && scale&0x3ff > 8
			sameScale := scale == binary.LittleEndian.Uint16(b)
			if !bytes.Equal(a[2:], b[2:]) || !bytes.Equal(b, c) || !sameScale && tensor.DType != kv.BF16 && !tie {
				rt.Fatalf("%s group %d:\n% x\n% x\n% x", tensor.DType, g, a, b, c)
			}
		}
	})
}

// The one case in which storing restored f16 rows changes a scale, and that it is no more than its last bit.
func TestRequantizingF16AtATie(t *testing.T) {
	tensor := kv.Tensor{Role: kv.RoleK, DType: kv.F16, Width: groupValues}
	changed := 0
	for scale := uint16(f16MinNormal); scale <= maxScaleF16; scale++ {
		plane := make([]byte, blockBytes)
		binary.LittleEndian.PutUint16(plane, scale)
		plane[2], plane[3] = 127, 0x81
		p := Plane{Codec: Q8_0, Rows: 1}
		again, _ := mustEncode(t, Q8_0, None, tensor, kv.Packed(0, 1, mustDecode(t, tensor, p, plane, 0, 1)), 0)
		switch got := binary.LittleEndian.Uint16(again); {
		case got == scale:
		case got == scale+1 || got == scale-1:
			changed++
			if scale&127 != 64 {
				t.Fatalf("scale %#04x becomes %#04x", scale, got)
			}
		default:
			t.Fatalf("scale %#04x becomes %#04x", scale, got)
		}
	}
	if total := maxScaleF16 - f16MinNormal + 1; changed == 0 || changed*127 > total {
		t.Fatalf("%d of %d scales change", changed, total)
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

func TestErrorsSayWhatIsWrong(t *testing.T) {
	f16 := kv.Tensor{Role: kv.RoleK, DType: kv.F16, Width: 64}
	good := make([]byte, 4*f16.RowBytes())
	for i := range 4 {
		good[i*f16.RowBytes()+1] = 0x3c // 1.0
	}
	copy(good, []byte{0x00, 0x7c}) // infinity
	stored, p := mustEncode(t, Q8_0, None, f16, kv.Packed(0, 4, good), 0)
	if p.Exceptions != 1 {
		t.Fatalf("%v", p)
	}
	codes := 8 * blockBytes
	with := func(fn func(p *Plane)) Plane { q := p; fn(&q); return q }
	edit := func(at int, v byte) []byte { b := bytes.Clone(stored); b[at] = v; return b }
	two, twice := with(func(p *Plane) { p.Exceptions = 2 }), make([]byte, codes+2*(4+64))
	out := kv.Packed(0, 4, make([]byte, len(good)))
	for name, c := range map[string]struct {
		p      Plane
		stored []byte
		dst    kv.TensorRows
		from   int
		want   error
		text   string
	}{
		"reserved codec":      {with(func(p *Plane) { p.Codec = Q8C }), stored, out, 0, ErrCodec, "quant: codec not supported: codec q8c is reserved for a later release"},
		"unknown codec":       {with(func(p *Plane) { p.Codec = 9 }), stored, out, 0, ErrCodec, "quant: codec not supported: unknown codec 9"},
		"no codec":            {with(func(p *Plane) { p.Codec = 0 }), stored, out, 0, ErrCodec, "quant: codec not supported: unknown codec 0"},
		"unknown compression": {with(func(p *Plane) { p.Compression = 4 }), stored, out, 0, ErrCodec, "quant: codec not supported: unknown compression 4"},
		"too many rows":       {with(func(p *Plane) { p.Rows = 1 << 16 }), stored, out, 0, damage.ErrCorrupt, "corrupt plane's number of rows at offset 0: expected at most 65535, found 65536"},
		"other rows":          {with(func(p *Plane) { p.Rows = 5 }), stored, out, 0, damage.ErrCorrupt, "corrupt q8_0 plane of 5 rows and 1 exceptions at offset 0: expected 408 bytes, found 340 bytes"},
		"other exceptions":    {with(func(p *Plane) { p.Exceptions = 2 }), stored, out, 0, damage.ErrCorrupt, "corrupt q8_0 plane of 4 rows and 2 exceptions at offset 0: expected 408 bytes, found 340 bytes"},
		"absurd exceptions":   {with(func(p *Plane) { p.Exceptions = 9 }), stored, out, 0, damage.ErrCorrupt, "corrupt plane's number of exceptions at offset 0: expected at most 8, found 9"},
		"index":               {p, edit(codes, 8), out, 0, damage.ErrCorrupt, "corrupt exception index at offset 272: expected a group from 0 to below 8, found 8"},
		"index twice":         {two, twice, out, 0, damage.ErrCorrupt, "corrupt exception index at offset 276: expected a group from 1 to below 8, found 0"},
		"exceptions in raw":   {with(func(p *Plane) { p.Codec = Raw }), stored, out, 0, damage.ErrCorrupt, "corrupt number of exceptions of a raw plane at offset 0: expected 0, found 1"},
		"short":               {p, stored[:300], out, 0, damage.ErrCorrupt, "corrupt q8_0 plane of 4 rows and 1 exceptions at offset 0: expected 340 bytes, found 300 bytes"},
		"behind the end":      {p, stored, out, 1, kv.ErrRows, "kv: rows do not fit: layer 0 K: 4 rows from row 1 of a plane that has 4"},
		"before the start":    {p, stored, out, -1, kv.ErrRows, "kv: rows do not fit: layer 0 K: 4 rows from row -1 of a plane that has 4"},
		"short memory":        {p, stored, kv.Packed(0, 4, good[1:]), 0, kv.ErrRows, "kv: rows do not fit: layer 0 K: piece 0 has 511 bytes, its 4 rows need 512"},
		"not zstd":            {with(func(p *Plane) { p.Compression = Zstd }), append([]byte{0x54, 1, 0, 0, 0, 0, 0, 0}, "no frame"...), out, 0, damage.ErrCorrupt, "corrupt zstd stream at offset 8: invalid input: magic number mismatch"},
		"compressed length":   {with(func(p *Plane) { p.Compression = S2 }), append([]byte{0x55, 1, 0, 0, 0, 0, 0, 0}, "no block"...), out, 0, damage.ErrCorrupt, "corrupt length of a compressed plane at offset 0: expected from 340 to 340, found 341"},
	} {
		err := Decode(c.dst, f16, c.p, c.stored, c.from)
		if !errors.Is(err, c.want) || err.Error() != c.text {
			t.Errorf("%s: %v\nwant %s", name, err, c.text)
		}
		if errors.Is(err, ErrCodec) && errors.Is(err, damage.ErrCorrupt) {
			t.Errorf("%s: a codec of a newer release counts as damage", name)
		}
	}
	if err := Decode(out, f16, p, stored, 0); err != nil {
		t.Error(err)
	}

	odd := kv.Tensor{DType: kv.F16, Width: 33}
	for _, c := range []Codec{0, Q8_0, Q8C, 77} {
		if _, _, err := Encode(nil, c, None, odd, kv.Packed(0, 1, make([]byte, 66)), 0); !errors.Is(err, ErrCodec) {
			t.Errorf("encoding 33 values as %s: %v", c, err)
		}
	}
	if _, _, err := Encode(nil, Raw, 9, odd, kv.Packed(0, 1, make([]byte, 66)), 0); !errors.Is(err, ErrCodec) {
		t.Errorf("encoding with compression 9: %v", err)
	}
	if _, err := Codes(Plane{Codec: Raw, Rows: 1}, odd, make([]byte, 66)); !errors.Is(err, ErrCodec) {
		t.Errorf("codes of a raw plane: %v", err)
	}
}

// Codes of an odd number of groups end 2 bytes before a multiple of 4.
func TestPaddingIsZero(t *testing.T) {
	tensor := kv.Tensor{Role: kv.RoleK, DType: kv.F16, Width: groupValues}
	src := normalRows(kv.F16, 3, groupValues, 1)
	stored, p := mustEncode(t, Q8_0, None, tensor, kv.Packed(0, 3, src), 2)
	if want := 3*blockBytes + 2 + 2*4 + 2*64; len(stored) != want || p.Exceptions != 2 {
		t.Fatalf("%d bytes, want %d: %v", len(stored), want, p)
	}
	again, _, _ := Encode(bytes.Repeat([]byte{canary}, 1000)[:0], Q8_0, None, tensor, kv.Packed(0, 3, src), 2)
	if !bytes.Equal(again, stored) {
		t.Fatal("a used buffer shows in the plane")
	}
	stored[3*blockBytes+1] = 1
	err := Decode(kv.Packed(0, 3, src), tensor, p, stored, 0)
	if want := "corrupt padding behind codes at offset 103: expected 0, found 1"; err == nil || err.Error() != want {
		t.Fatalf("%v, want %s", err, want)
	}
}

// Streams that are damaged, each in one place, say so.
func TestDamagedStreams(t *testing.T) {
	tensor := kv.Tensor{Role: kv.RoleV, DType: kv.F16, Width: 150}
	src := normalRows(kv.F16, 10, 150, 1)
	for i := 1; i < len(src); i += 2 {
		src[i] = 0x3c
	}
	// Two chunks: the low bytes as they are, the high byte that repeats.
	stored, p := mustEncode(t, ByteSplit, None, tensor, kv.Packed(0, 10, src), 0)
	second := len(stored) - 5
	if second != 4+1500 || stored[3] != modeStored || stored[second+3] != modeRepeats {
		t.Fatalf("%d bytes: % x … % x", len(stored), stored[:4], stored[second:])
	}
	repeated := func(from, until []byte) []byte { return append(bytes.Clone(from), until...) }
	head := func(mode, length int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(mode<<24|length)) }
	plain := Plane{Codec: Raw, Compression: Huff0, Rows: 10}
	coded := appendCoded(appendCompressedHeader(nil, 3000), bytes.Repeat([]byte{7}, 3000))
	for text, c := range map[string]struct {
		p      Plane
		stored []byte
	}{
		"corrupt chunk of a bytesplit plane at offset 1504: stored chunk: expected 1500 bytes, found 1":           {p, repeated(stored[:second], []byte{1, 0, 0, modeStored, 7})},
		"corrupt chunk of a bytesplit plane at offset 1504: repeating chunk: expected 1 byte, found 0":            {p, repeated(stored[:second], []byte{0, 0, 0, modeRepeats, 7})},
		"corrupt chunk of a bytesplit plane at offset 1504: unknown chunk mode 3":                                 {p, repeated(stored[:second], []byte{1, 0, 0, 3, 7})},
		"corrupt chunk of a bytesplit plane at offset 1504: chunk of 2 bytes in the last 1 bytes":                 {p, repeated(stored[:second], []byte{2, 0, 0, modeHuff0, 7})},
		"corrupt chunk of a bytesplit plane at offset 1504: chunk header: expected 4 bytes, found 2":              {p, stored[:second+2]},
		"corrupt chunk of a bytesplit plane at offset 0: huff0 chunk: expected fewer than 1500 bytes, found 1500": {p, repeated(head(modeHuff0, 1500), stored[4:])},
		"corrupt bytesplit plane at offset 1509: expected its end, found 1 more bytes":                            {p, append(bytes.Clone(stored), 0)},
		"corrupt bytesplit plane of 10 rows at offset 0: expected from 10 to 3008 bytes, found 9 bytes":           {p, stored[:9]},
		"corrupt huff0 stream at offset 8: 1 bytes behind its end":                                                {plain, append(bytes.Clone(coded), 0)},
		"corrupt length of a compressed plane at offset 0: expected from 3000 to 3000, found 3001":                {plain, appendCompressedHeader(nil, 3001)[:8:8]},
		"corrupt compressed plane at offset 0: expected more than 8 bytes, found 3 bytes":                         {plain, coded[:3]},
		"corrupt compressed plane at offset 0: expected at most 95 % of 3000 bytes, found 2851 bytes":             {plain, appendCompressedHeader(nil, 3000)},
		"corrupt s2 stream at offset 8: expected 3000 bytes, found 1":                                             {Plane{Codec: Raw, Compression: S2, Rows: 10}, append(appendCompressedHeader(nil, 3000), 1, 0, 0)},
	} {
		switch { // headers alone, filled up to the length that the case is about
		case len(c.stored) == 8 && c.stored[0] == 0xb9:
			c.stored = append(c.stored, 0)
		case len(c.stored) == 8:
			c.stored = append(c.stored, make([]byte, 2851-8)...)
		}
		err := Decode(kv.Packed(0, 10, make([]byte, 3000)), tensor, c.p, c.stored, 0)
		if err == nil || err.Error() != text || !errors.Is(err, damage.ErrCorrupt) {
			t.Errorf("%v\nwant %s", err, text)
		}
	}
	if err := Decode(kv.Packed(0, 10, make([]byte, 3000)), tensor, plain, coded, 0); err != nil {
		t.Error(err)
	}
}

// A plane that compression makes 3 % smaller is kept as it is; at 6 % it is kept compressed.
func TestCompressionMustSaveFivePercent(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for comp := Zstd; comp.Valid(); comp++ {
		for percent, want := range map[int]Compression{0: None, 4: None, 7: comp, 100: comp} {
			src := make([]byte, 32*chunkBytes)
			for i := len(src) * percent / 100 &^ (chunkBytes - 1); i < len(src); i++ {
				src[i] = byte(rng.Uint32())
			}
			tensor := kv.Tensor{DType: kv.Bytes, Width: len(src) / 32}
			stored, p := mustEncode(t, Raw, comp, tensor, kv.Packed(0, 32, src), 0)
			if p.Compression != want || want == None && !bytes.Equal(stored, src) {
				t.Errorf("%d %% zeros: %s makes %d of %d bytes, stored as %s", percent, comp, len(stored), len(src), p.Compression)
			}
		}
	}
}

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
		for c := range Codec(6) {
			if c.Supports(tensor) {
				t.Errorf("%s holds %s of width %d", c, tensor.DType, tensor.Width)
			}
		}
	}
}

// A buffer of MaxEncodedBytes is never outgrown by ordinary values.
func TestMaxEncodedBytes(t *testing.T) {
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
		tensor := kv.Tensor{DType: dt, Width: 96}
		for _, c := range []Codec{Raw, Q8_0, ByteSplit} {
			for _, exact := range []int{0, 4, 100} {
				n := MaxEncodedBytes(c, tensor, 33, exact)
				src := normalRows(dt, 33, 96, 5)
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

// Nothing is allocated on the way to and from Raw and Q8_0 planes, strides and exceptions or not.
func TestNoAllocations(t *testing.T) {
	const rows = 64
	for _, dt := range []kv.DType{kv.F16, kv.BF16, kv.F32} {
		tensor := kv.Tensor{DType: dt, Width: 256}
		size := dt.GroupBytes()
		mem := normalRows(dt, rows, 256, 9)
		copy(mem[len(mem)-size:], bytes.Repeat([]byte{0xff}, size)) // a NaN
		for name, piece := range map[string]kv.Piece{
			"packed":        {Mem: mem, Count: rows},
			"row gaps":      {Mem: mem, Count: rows / 2, RowStride: 2 * 256 * size},
			"channel-major": {Mem: mem, Count: rows, RowStride: size, ElemStride: rows * size},
		} {
			src := kv.TensorRows{Pieces: []kv.Piece{piece}}
			for _, c := range []Codec{Raw, Q8_0} {
				stored, p := mustEncode(t, c, None, tensor, src, 2)
				if n := testing.AllocsPerRun(100, func() { stored, p, _ = Encode(stored[:0], c, None, tensor, src, 2) }); n > 0 {
					t.Errorf("encoding %s %s %s: %g allocations", dt, name, c, n)
				}
				if n := testing.AllocsPerRun(100, func() { _ = Decode(src, tensor, p, stored, 0) }); n > 0 {
					t.Errorf("decoding %s %s %s: %g allocations", dt, name, c, n)
				}
			}
		}
	}
}
