package quant

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
)

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
		"unknown codec":       {with(func(p *Plane) { p.Codec = 9 }), stored, out, 0, ErrCodec, "quant: codec not supported: unknown codec 9: expected raw, q8_0, bytesplit, q4r"},
		"no codec":            {with(func(p *Plane) { p.Codec = 0 }), stored, out, 0, ErrCodec, "quant: codec not supported: unknown codec 0: expected raw, q8_0, bytesplit, q4r"},
		"unknown compression": {with(func(p *Plane) { p.Compression = 4 }), stored, out, 0, ErrCodec, "quant: codec not supported: unknown compression 4: expected none, zstd, s2, huff0"},
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
