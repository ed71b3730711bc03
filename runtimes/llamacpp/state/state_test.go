package state

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite golden files")

// Parsing what llama.cpp would write and building it again gives the same bytes; the rows come out in position order
// whatever the cell order and the layout of V.
func TestParseBuildIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ext := rapid.SampledFrom([]int{0, 8, 12}).Draw(t, "ext")
		hasV := rapid.Bool().Draw(t, "V")
		caches := []*cache{drawCache(t, "base", ext, hasV, 0)}
		if rapid.Bool().Draw(t, "two sections") {
			caches = append(caches, drawCache(t, "window", ext, hasV, rapid.IntRange(0, 9).Draw(t, "window first")))
		}
		says := rapid.Bool().Draw(t, "says the rotation")
		for i, c := range caches {
			if says {
				c.rotate(t, fmt.Sprint("section ", i))
			}
		}
		sequence := int32(rapid.IntRange(0, 7).Draw(t, "sequence"))
		var probe []*cache
		for _, c := range caches {
			probe = append(probe, c.only(c.pos[:1], ext))
		}
		f, err := Learn(encode(sequence, ext, probe...), len(caches))
		if err != nil {
			t.Fatalf("learn: %v", err)
		}
		if f.ExtBytes != ext || f.HasV() != hasV || f.HasRotation != says {
			t.Fatalf("learned ext %d, V %v, rotation said %v; want %d, %v and %v", f.ExtBytes, f.HasV(), f.HasRotation, ext, hasV, says)
		}
		for i, c := range caches {
			if r := f.Sections[i].Rotation; says && r != (Rotation{c.rotation[0], c.rotation[1]}) {
				t.Fatalf("section %d is rotated by %v, want %v", i, r, *c.rotation)
			}
		}
		blob := encode(sequence, ext, caches...)
		s, err := f.Parse(blob)
		if err != nil {
			t.Fatalf("parse: %v", err)
		}
		var cells []Cells
		for i := range s.Sections {
			cells = append(cells, s.Sections[i].Cells)
			first, end, whole := s.Sections[i].Range()
			if !whole {
				t.Fatalf("section %d: positions [%d, %d) are not whole", i, first, end)
			}
			wantRows(t, &s.Sections[i], caches[i], first, end)
		}
		built, again := f.Build(make([]byte, len(blob)), s.Sequence, cells)
		for i := range built.Sections {
			for j := range built.Sections[i].k {
				copy(built.Sections[i].k[j], s.Sections[i].k[j])
			}
			for j := range built.Sections[i].v {
				copy(built.Sections[i].v[j], s.Sections[i].v[j])
			}
		}
		if !bytes.Equal(blob, again) {
			t.Fatalf("built again it differs")
		}
	})
}

// A blob cut to a prefix through canonical rows, for a context with the other layout of V, holds just these rows: flash
// attention on and off share them.
func TestCutAndReassemble(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := drawCache(t, "from", 0, true, 0)
		sequence := int32(1)
		f, err := Learn(encode(sequence, 0, from), 1)
		if err != nil {
			t.Fatalf("learn: %v", err)
		}
		to := *from
		if from.layers[0].typ <= 1 {
			to.transposed = !from.transposed
		}
		to.streams, to.stream = 1, 0
		g, err := Learn(encode(0, 0, &to), 1)
		if err != nil {
			t.Fatalf("learn: %v", err)
		}
		src, err := f.Parse(encode(sequence, 0, from))
		if err != nil {
			t.Fatalf("parse: %v", err)
		}
		n := rapid.IntRange(1, len(from.pos)).Draw(t, "prefix")
		dst, blob := g.Build(nil, 0, []Cells{Span(0, 0, n)})
		for i := range from.layers {
			for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
				tf := g.Sections[0].Layers[i].K
				if role == kv.RoleV {
					tf = g.Sections[0].Layers[i].V
				}
				x := tensor(tf)
				unpack(x, dst.Sections[0].Rows(i, role), packed(x, src.Sections[0].Rows(i, role).Slice(x, 0, n)))
			}
		}
		var pos []int32
		for p := range n {
			pos = append(pos, int32(p))
		}
		if want := encode(0, 0, to.only(pos, 0)); !bytes.Equal(blob, want) {
			t.Fatalf("the prefix of %d cells differs from what llama.cpp would write", n)
		}
	})
}

func small() *cache {
	return &cache{streams: 1, pos: []int32{2, 0, 1}, layers: []layer{{
		typ: 1, elem: 2, width: 2,
		k: map[int32][]byte{0: {1, 2, 3, 4, 5, 6}, 1: {7, 8, 9, 10, 11, 12}, 2: {13, 14, 15, 16, 17, 18}},
		v: map[int32][]byte{0: {21, 22, 23, 24}, 1: {25, 26, 27, 28}, 2: {29, 30, 31, 32}},
	}}}
}

func TestGolden(t *testing.T) {
	for _, name := range []string{"row-major", "channel-major", "rotation-said"} {
		c := small()
		c.transposed = name == "channel-major"
		if name == "rotation-said" {
			c.rotation = new([2]int)
		}
		f, err := Learn(encode(0, 0, c), 1)
		if err != nil {
			t.Fatal(err)
		}
		s, blob := f.Build(nil, 0, []Cells{{Pos: c.pos}})
		for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
			rows, from, tf := s.Sections[0].Rows(0, role), c.layers[0].k, f.Sections[0].Layers[0].K
			if role == kv.RoleV {
				from, tf = c.layers[0].v, f.Sections[0].Layers[0].V
			}
			unpack(tensor(tf), rows, slices.Concat(from[0], from[1], from[2]))
		}
		got := hex.Dump(blob)
		path := "testdata/" + name + ".golden"
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

// Every cut, and every changed field that matters, is refused with its own words.
func TestRefused(t *testing.T) {
	blob := encode(0, 0, small())
	f, err := Learn(blob, 1)
	if err != nil {
		t.Fatal(err)
	}
	for n := range blob {
		if _, err := f.Parse(blob[:n]); !errors.Is(err, ErrBlob) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	for what, x := range map[string]struct {
		at   int
		v    byte
		want string
	}{
		"magic":           {0, 0, "magic"},
		"streams":         {8, 2, ""},
		"cells":           {12, 9, ""},
		"twice":           {16, 0, "twice"},
		"two sequences":   {20, 2, "sequences of a cell"},
		"v_trans":         {52, 2, "v_trans"},
		"layers":          {56, 2, ""},
		"key type":        {60, 0, "section 0 is"},
		"key bytes":       {64, 3, ""},
		"trailing":        {-1, 0, "end of blob"},
		"value row bytes": {90, 9, ""},
	} {
		b := bytes.Clone(blob)
		if x.at < 0 {
			b = append(b, 0)
		} else {
			b[x.at] = x.v
		}
		if _, err := f.Parse(b); !errors.Is(err, ErrBlob) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	said := small()
	said.rotation = new([2]int)
	other, err := Learn(encode(0, 0, said), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Parse(blob); !errors.Is(err, ErrBlob) {
		t.Errorf("a blob that does not say its rotation, where that is expected: %v", err)
	}
	if _, err := f.Parse(encode(0, 0, said)); !errors.Is(err, ErrBlob) {
		t.Errorf("a blob that says its rotation, where none is expected: %v", err)
	}
	said.widen(64)
	said.rotation[0] = 64
	rotated, err := Learn(encode(0, 0, said), 1)
	if err != nil {
		t.Fatal(err)
	}
	said.rotation[0] = 128
	if _, err := rotated.Parse(encode(0, 0, said)); !errors.Is(err, ErrBlob) || !strings.Contains(err.Error(), "section 0 is") {
		t.Errorf("another rotation than that of the format: %v", err)
	}
	for _, n := range []int{1, 32, 96, 256} { // no matrix of llama.cpp's, or wider than the row
		said.rotation[1] = n
		if _, err := Learn(encode(0, 0, said), 1); !errors.Is(err, ErrBlob) {
			t.Errorf("rotated by a matrix of %d: %v", n, err)
		}
	}
	unknown := small()
	unknown.layers[0].typ = 20
	if _, err := Learn(encode(0, 0, unknown), 1); !errors.Is(err, ErrBlob) {
		t.Errorf("unknown element type: %v", err)
	}
	if _, err := Learn(blob, 2); !errors.Is(err, ErrBlob) {
		t.Errorf("one section read as two: %v", err)
	}
	gap := small()
	gap.pos = []int32{4, 0, 1}
	gap.layers[0].k[4], gap.layers[0].v[4] = make([]byte, 6), make([]byte, 4)
	s, err := f.Parse(encode(0, 0, gap))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, whole := s.Sections[0].Range(); whole {
		t.Error("a missing position is not noticed")
	}
	wantRows(t, &s.Sections[0], gap, 0, 2)
}
