package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/internal/fuzzkit"
	"github.com/dormousekv/dormouse/kv"
)

// FuzzParse: a blob that is understood describes memory within it, each byte of a row once, and is the same when it is built
// again. What is not understood is an ErrBlob. A blob is also read as one of a context whose format is known.
func FuzzParse(f *testing.F) {
	one := encode(0, 0, small())
	transposed := small()
	transposed.transposed = true
	said := small()
	said.rotation = new([2]int)
	rotated := small().only([]int32{1}, 0)
	rotated.widen(64)
	rotated.rotation = &[2]int{64, 64}
	edit := func(off int, v uint32) []byte {
		b := bytes.Clone(one)
		binary.LittleEndian.PutUint32(b[off:], v)
		return b
	}
	fuzzkit.Seeds(f,
		[]any{one, 1}, []any{encode(0, 0, transposed), 1}, []any{encode(0, 0, small(), small()), 2}, []any{[]byte{}, 1},
		[]any{edit(8, 1<<32-1), 1}, []any{edit(12, 1<<32-1), 1}, []any{edit(56, 1<<32-1), 1}, []any{edit(64, 1<<32-1), 1},
		[]any{edit(16, 1<<31), 1}, []any{one[:len(one)-1], 1},
		[]any{encode(0, 0, said), 1}, []any{encode(0, 0, rotated), 1}, []any{encode(0, 0, said, rotated), 2},
	)
	var known []Format
	for _, c := range []*cache{small(), said, rotated} {
		g, err := Learn(encode(0, 0, c), 1)
		if err != nil {
			f.Fatal(err)
		}
		known = append(known, g)
	}
	f.Fuzz(func(t *testing.T, blob []byte, sections int) {
		fuzzkit.Bounded(t, 1<<20+uint64(200*len(blob)), func() {
			Shape(blob)
			for _, g := range known {
				if s, err := g.Parse(blob); err == nil {
					lawful(t, g, s, blob)
				} else if !errors.Is(err, ErrBlob) {
					t.Fatal(err)
				}
			}
			g, err := Learn(blob, sections)
			if err != nil {
				if !errors.Is(err, ErrBlob) {
					t.Fatal(err)
				}
				return
			}
			s, err := g.Parse(blob)
			if err != nil {
				t.Fatalf("learned but not parsed: %v", err)
			}
			lawful(t, g, s, blob)
		})
	})
}

// lawful says what must hold for a blob that was parsed.
func lawful(t *testing.T, g Format, s *State, blob []byte) {
	var cells []Cells
	for i := range s.Sections {
		cells = append(cells, s.Sections[i].Cells)
	}
	built, again := g.Build(nil, s.Sequence, cells)
	if len(again) != len(blob) {
		t.Fatalf("built again it has %d bytes, not %d", len(again), len(blob))
	}
	for i := range s.Sections {
		sec := &s.Sections[i]
		first, end, whole := sec.Range()
		if first < 0 || end < first || whole && end-first != sec.Count() {
			t.Fatalf("section %d of %d cells: [%d, %d)", i, sec.Count(), first, end)
		}
		for l := range g.Sections[i].Layers {
			for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
				tf := g.Sections[i].Layers[l].K
				if role == kv.RoleV {
					tf = g.Sections[i].Layers[l].V
				}
				if tf.RowBytes == 0 || sec.Count() == 0 {
					continue
				}
				rows := sec.Rows(l, role)
				if err := rows.Validate(tensor(tf)); err != nil {
					t.Fatal(err)
				}
				want := packed(tensor(tf), rows)
				if whole && len(want) != sec.Count()*tf.RowBytes {
					t.Fatalf("section %d layer %d %v: %d bytes in %d rows of %d", i, l, role, len(want), sec.Count(), tf.RowBytes)
				}
				if !bytes.Equal(Pack(tensor(tf), rows), want) {
					t.Fatalf("section %d layer %d %v: packed otherwise", i, l, role)
				}
				if got := built.Sections[i].Rows(l, role); got.Count() != rows.Count() || got.First != rows.First {
					t.Fatalf("section %d layer %d %v: rows %d, +%d, built again %d, +%d", i, l, role, rows.First, rows.Count(), got.First, got.Count())
				}
			}
		}
	}
}
