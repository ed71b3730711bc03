package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/internal/fuzzkit"
	"pgregory.net/rapid"
)

// encodeRecurrent writes the recurrent part field by field, as llama.cpp's source does. A nil row has no cell.
func encodeRecurrent(pos int32, layers int, types []int32, rows [][]byte) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 1)
	b = le.AppendUint32(b, uint32(pos))
	b = le.AppendUint32(b, 0)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint32(b, uint32(layers))
	for i, row := range rows {
		b = le.AppendUint32(b, uint32(types[i]))
		b = le.AppendUint64(b, uint64(len(row)))
		b = append(b, row...)
	}
	return b
}

// What llama.cpp writes is learned, parsed, and told from every other layout; a cut or a longer one is refused.
func TestRecurrentIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layers := rapid.IntRange(1, 5).Draw(t, "layers")
		rows := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 40), 1, 2*layers).Draw(t, "rows")
		types := rapid.SliceOfN(rapid.Int32Range(0, 1), len(rows), len(rows)).Draw(t, "types")
		pos := rapid.Int32Range(0, 1<<30).Draw(t, "pos")
		part := encodeRecurrent(pos, layers, types, rows)
		f, err := LearnRecurrent(part)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.Parse(part); err != nil || got != int(pos) {
			t.Fatalf("position %d, not %d: %v", got, pos, err)
		}
		if f.Size() != len(part) {
			t.Fatalf("%d bytes, not %d", f.Size(), len(part))
		}
		other := encodeRecurrent(pos+1, layers, types, append(rows[:len(rows)-1:len(rows)-1], append([]byte{7}, rows[len(rows)-1]...)))
		if _, err := f.Parse(other); !errors.Is(err, ErrBlob) {
			t.Fatalf("another layout: %v", err)
		}
		for _, bad := range [][]byte{part[:len(part)-1], append(bytes.Clone(part), 0), f.Empty(), nil} {
			if _, err := f.Parse(bad); !errors.Is(err, ErrBlob) {
				t.Fatalf("%d bytes of %d: %v", len(bad), len(part), err)
			}
		}
		for at, what := range map[int]string{0: "cells", 7: "pos", 8: "sequences", 12: "s_trans", 18: "layers"} {
			bad := bytes.Clone(part)
			bad[at] ^= 0x80
			if _, err := f.Parse(bad); !errors.Is(err, ErrBlob) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	})
}

// FuzzRecurrent: no part makes it panic or take much memory, and what is understood is the same when it is built again.
func FuzzRecurrent(f *testing.F) {
	part := encodeRecurrent(9, 2, []int32{0, 0, 1}, [][]byte{{1, 2}, {3}, {}})
	fuzzkit.Seeds(f, []any{part}, []any{part[:20]}, []any{encodeRecurrent(-1, 1, nil, nil)}, []any{[]byte{}})
	known, err := LearnRecurrent(part)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzkit.Bounded(t, 1<<20+uint64(200*len(b)), func() {
			if body, err := Body(b); err == nil && len(body) != len(b)-prefixBytes {
				t.Fatalf("a body of %d bytes in a blob of %d", len(body), len(b))
			}
			if _, err := known.Parse(b); err != nil && !errors.Is(err, ErrBlob) {
				t.Fatal(err)
			}
			g, err := LearnRecurrent(b)
			if err != nil {
				if !errors.Is(err, ErrBlob) {
					t.Fatal(err)
				}
				return
			}
			if _, err := g.Parse(b); err != nil || g.Size() != len(b) {
				t.Fatalf("learned, but not parsed: %v; %d bytes, not %d", err, g.Size(), len(b))
			}
		})
	})
}
