package state

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// slot is a slot file, written without the package under test.
type slot struct {
	version     int
	plain       bool
	tokens      []int32
	media       int32
	sequence    int32
	ext         int
	caches      []*cache
	recurrent   []byte
	trailer     bool
	checkpoints []slotCheckpoint
}

type slotCheckpoint struct {
	tokens         int64
	posMin, posMax int32
	sequence       int32
	window         *cache
	recurrent      []byte
	draft, spec    []byte
}

// encode writes the file field by field, as the server's source does.
func (s slot) encode() []byte {
	le := binary.LittleEndian
	words := slices.Clone(s.tokens)
	if !s.plain {
		words = append(append([]int32{-1, 1, int32(len(s.tokens))}, words...), s.media)
	}
	b := append([]byte("qsgg"), byte(s.version), 0, 0, 0)
	b = le.AppendUint32(b, uint32(len(words)))
	for _, w := range words {
		b = le.AppendUint32(b, uint32(w))
	}
	for _, c := range s.caches {
		b = c.encode(b, s.sequence, s.ext)
	}
	b = append(b, s.recurrent...)
	if !s.trailer {
		return b
	}
	b = le.AppendUint32(append(b, "SCKP\x01\x00\x00\x00"...), uint32(len(s.checkpoints)))
	for _, c := range s.checkpoints {
		b = le.AppendUint64(b, uint64(c.tokens))
		b = le.AppendUint32(b, uint32(c.posMin))
		b = le.AppendUint32(b, uint32(c.posMax))
		blob := encode(c.sequence, s.ext)
		if c.window != nil {
			blob = c.window.encode(blob, c.sequence, s.ext)
		}
		for _, part := range [][]byte{append(blob, c.recurrent...), c.draft, c.spec} {
			b = append(le.AppendUint64(b, uint64(len(part))), part...)
		}
	}
	return b
}

// Taking a slot file apart and building it again gives the same bytes, whatever is in it; the rows of its sections and
// checkpoints come out in position order. A file laid out from cells alone is the same.
func TestFileIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ext := rapid.SampledFrom([]int{0, 8, 12}).Draw(t, "ext")
		hasV := rapid.Bool().Draw(t, "V")
		s := slot{
			version: rapid.IntRange(3, 4).Draw(t, "version"), ext: ext,
			plain:    rapid.Bool().Draw(t, "plain"),
			tokens:   rapid.SliceOfN(rapid.Int32Range(0, 1<<18), 0, 9).Draw(t, "tokens"),
			sequence: rapid.Int32Range(0, 5).Draw(t, "slot"),
		}
		var part func(name string) []byte // nil: no layer is recurrent
		if rapid.Bool().Draw(t, "recurrent") {
			layers := rapid.IntRange(1, 3).Draw(t, "layers")
			sizes := rapid.SliceOfN(rapid.IntRange(0, 20), 1, 2*layers).Draw(t, "sizes")
			types := rapid.SliceOfN(rapid.Int32Range(0, 1), len(sizes), len(sizes)).Draw(t, "types")
			part = func(name string) []byte {
				var rows [][]byte
				for _, n := range sizes {
					rows = append(rows, rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, name))
				}
				return encodeRecurrent(rapid.Int32Range(0, 1<<30).Draw(t, name+" pos"), layers, types, rows)
			}
			s.recurrent = part("state")
		}
		if part == nil || rapid.Bool().Draw(t, "attention") {
			s.caches = append(s.caches, drawCache(t, "base", ext, hasV, 0))
		} else {
			s.ext, s.sequence = 0, 0 // nothing says otherwise
		}
		if len(s.caches) == 1 && rapid.Bool().Draw(t, "window") {
			s.caches = append(s.caches, drawCache(t, "window", ext, hasV, rapid.IntRange(0, 9).Draw(t, "window first")))
		}
		for _, c := range s.caches {
			if s.version == 4 {
				c.rotate(t, "section")
			}
		}
		s.trailer = rapid.Bool().Draw(t, "trailer")
		if s.trailer && (len(s.caches) == 2 || part != nil) {
			for range rapid.IntRange(0, 3).Draw(t, "checkpoints") {
				c := slotCheckpoint{
					tokens: rapid.Int64Range(0, 1<<40).Draw(t, "tokens of a checkpoint"), posMin: rapid.Int32().Draw(t, "pos_min"), posMax: rapid.Int32().Draw(t, "pos_max"),
					sequence: rapid.Int32Range(0, 5).Draw(t, "slot of a checkpoint"),
					draft:    rapid.SliceOf(rapid.Byte()).Draw(t, "draft"), spec: rapid.SliceOf(rapid.Byte()).Draw(t, "spec"),
				}
				if len(s.caches) == 2 {
					window := s.caches[1]
					c.window = window.only(window.pos[:rapid.IntRange(1, len(window.pos)).Draw(t, "cells of a checkpoint")], ext)
				}
				if part != nil {
					c.recurrent = part("state of a checkpoint")
				}
				s.checkpoints = append(s.checkpoints, c)
			}
		}
		b := s.encode()
		f, err := LearnFile(b, len(s.caches))
		if err != nil {
			t.Fatalf("learn: %v", err)
		}
		if f.Version != uint32(s.version) || (f.Recurrent != nil) != (part != nil) ||
			len(s.caches) > 0 && (f.State.HasRotation != (s.version == 4) || f.State.ExtBytes != ext) {
			t.Fatalf("learned %+v", f)
		}
		file, err := f.Parse(b)
		if err != nil {
			t.Fatalf("parse: %v", err)
		}
		if !slices.Equal(file.Tokens, s.tokens) || file.State.Sequence != s.sequence || file.Trailer != s.trailer || len(file.Checkpoints) != len(s.checkpoints) ||
			!bytes.Equal(file.Recurrent, s.recurrent) {
			t.Fatalf("parsed %+v", file)
		}
		for i, c := range s.caches {
			first, end, _ := file.State.Sections[i].Range()
			wantRows(t, &file.State.Sections[i], c, first, end)
		}
		for i, c := range file.Checkpoints {
			want := s.checkpoints[i]
			if c.Tokens != want.tokens || c.PosMin != want.posMin || c.PosMax != want.posMax || c.State.Sequence != want.sequence ||
				!bytes.Equal(c.Draft, want.draft) || !bytes.Equal(c.Spec, want.spec) || !bytes.Equal(c.Recurrent, want.recurrent) ||
				want.window != nil && !slices.Equal(c.State.Sections[0].Pos, want.window.pos) {
				t.Fatalf("checkpoint %d: %+v", i, c)
			}
		}
		bare := *file
		bare.State, bare.Recurrent = onlyCells(file.State), nil
		bare.Checkpoints = slices.Clone(file.Checkpoints)
		for i := range bare.Checkpoints {
			bare.Checkpoints[i].State, bare.Checkpoints[i].Recurrent = onlyCells(bare.Checkpoints[i].State), nil
		}
		room := make([]byte, f.Size(&bare))
		built, again := f.Build(room, &bare)
		built.copyRows(file)
		copy(built.Recurrent, file.Recurrent)
		for i := range built.Checkpoints {
			copy(built.Checkpoints[i].Recurrent, file.Checkpoints[i].Recurrent)
		}
		if len(again) > 0 && &again[0] != &room[0] || !bytes.Equal(b, again) {
			t.Fatal("built again it differs, or is elsewhere")
		}
	})
}

func onlyCells(s *State) *State {
	out := &State{Sequence: s.Sequence}
	for _, sec := range s.Sections {
		out.Sections = append(out.Sections, Section{Cells: sec.Cells})
	}
	return out
}

// smallSlot is a file of a model with a window, with all that one can have in it.
func smallSlot() slot {
	window := small().only([]int32{1, 2}, 0)
	return slot{
		version: 3, tokens: []int32{7, 8, 9}, sequence: 2, caches: []*cache{small(), window}, trailer: true,
		checkpoints: []slotCheckpoint{{tokens: 2, posMin: 0, posMax: 1, sequence: 2, window: small().only([]int32{0, 1}, 0), draft: []byte{1}, spec: []byte{2, 3}}},
	}
}

func TestFileGolden(t *testing.T) {
	b := smallSlot().encode()
	f, err := LearnFile(b, 2)
	if err != nil {
		t.Fatal(err)
	}
	file, err := f.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	built, again := f.Build(nil, file)
	built.copyRows(file)
	got := hex.Dump(again)
	const path = "testdata/slot-file.golden"
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
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// Every cut, every byte too many and every file of another kind is refused, with its own words where there are some.
func TestFileRefused(t *testing.T) {
	good := smallSlot()
	b := good.encode()
	f, err := LearnFile(b, 2)
	if err != nil {
		t.Fatal(err)
	}
	body := good
	body.trailer = false
	whole := len(body.encode()) // a file without checkpoints is whole, too
	for n := range b {
		if _, err := f.Parse(b[:n]); n != whole && !errors.Is(err, ErrBlob) {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(b), err)
		}
		if _, err := LearnFile(b[:n], 2); n != whole && !errors.Is(err, ErrBlob) {
			t.Fatalf("learned from %d of %d bytes: %v", n, len(b), err)
		}
	}
	at := func(off int, v uint32) []byte {
		c := bytes.Clone(b)
		if off < 0 {
			off += len(c)
		}
		binary.LittleEndian.PutUint32(c[off:], v)
		return c
	}
	one := slot{version: 3, tokens: []int32{7, 8, 9}, caches: good.caches[:1]}
	oneTrailer := good
	oneTrailer.caches = good.caches[:1]
	said := good
	said.version, said.caches = 4, []*cache{small(), small()}
	said.caches[0].rotation, said.caches[1].rotation = new([2]int), new([2]int)
	said.trailer, said.checkpoints = false, nil
	wide := good
	wide.caches = []*cache{small(), small()}
	wide.caches[1].widen(2)
	wideCheckpoint := smallSlot()
	wideCheckpoint.checkpoints[0].window.widen(2)
	for what, x := range map[string]struct {
		b    []byte
		want string
	}{
		"empty":                     {nil, "magic"},
		"a blob":                    {encode(0, 0, good.caches...), "magic"},
		"magic":                     {at(0, 0), "offset 4: magic"},
		"version 2":                 {at(4, 2), "version is 2, expected 3 or 4"},
		"version 5":                 {at(4, 5), "version is 5"},
		"version of another server": {at(4, 4), ""},
		"words":                     {at(8, 1<<32-1), "words of the token list"},
		"fewer words than tokens":   {at(8, 4), ""},
		"packed version":            {at(16, 2), "version of a packed list is 2"},
		"tokens":                    {at(20, 4), "tokens is 4"},
		"a negative token":          {at(28, 1<<31), "a token is negative"},
		"a byte more":               {append(bytes.Clone(b), 0), "end of file"},
		"another trailer":           {bytes.Replace(b, []byte("SCKP"), []byte("SCKQ"), 1), "magic of checkpoints"},
		"another trailer's version": {bytes.Replace(b, []byte("SCKP\x01"), []byte("SCKP\x02"), 1), "version of checkpoints is 2"},
		"checkpoints":               {bytes.Replace(b, []byte("SCKP\x01\x00\x00\x00\x01"), []byte("SCKP\x01\x00\x00\x00\x02"), 1), "n_tokens is 8 bytes"},
		"no checkpoints":            {bytes.Replace(b, []byte("SCKP\x01\x00\x00\x00\x01"), []byte("SCKP\x01\x00\x00\x00\x00"), 1), "end of file"},
		"one section":               {one.encode(), ""},
		"rotation said":             {said.encode(), ""},
		"wider rows":                {wide.encode(), "section 1 is"},
		"wider checkpoint":          {wideCheckpoint.encode(), "checkpoint 0: "},
		"magic of a checkpoint":     {bytes.Replace(b, []byte("\xd8\x3c\x14\xaf"), []byte("\xd9\x3c\x14\xaf"), 1), "magic"},
	} {
		if _, err := f.Parse(x.b); !errors.Is(err, ErrBlob) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", what, err, x.want)
		}
	}
	if _, err := LearnFile(oneTrailer.encode(), 1); !errors.Is(err, ErrBlob) || !strings.Contains(err.Error(), "no window") {
		t.Errorf("checkpoints of a cache without window: %v", err)
	}
	hybrid := slot{version: 3, tokens: []int32{7}, caches: good.caches[:1], recurrent: encodeRecurrent(2, 2, []int32{0, 1}, [][]byte{{1, 2}, {3}})}
	h, err := LearnFile(hybrid.encode(), 1)
	if err != nil || h.Equal(f) || !h.Equal(h) {
		t.Fatalf("a hybrid: %+v, %v", h, err)
	}
	other := hybrid
	other.recurrent = encodeRecurrent(2, 2, []int32{0, 1}, [][]byte{{1, 2}, {3, 4}})
	if g, err := LearnFile(other.encode(), 1); err != nil || g.Equal(h) {
		t.Errorf("two layouts of recurrent states are one: %v", err)
	}
	none := hybrid
	none.recurrent = nil
	withCheckpoint := hybrid
	withCheckpoint.trailer, withCheckpoint.checkpoints = true, []slotCheckpoint{{tokens: 1, recurrent: other.recurrent}}
	for what, b := range map[string][]byte{
		"another recurrent part": other.encode(), "no recurrent part": none.encode(), "a file with a window": b,
		"another recurrent part in a checkpoint": withCheckpoint.encode(),
	} {
		if _, err := h.Parse(b); !errors.Is(err, ErrBlob) {
			t.Errorf("%s, for a hybrid: %v", what, err)
		}
	}
	g, err := LearnFile(none.encode(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Parse(hybrid.encode()); !errors.Is(err, ErrBlob) {
		t.Errorf("a recurrent part where none is expected: %v", err)
	}
	for _, sections := range []int{-1, 0, 3} {
		if _, err := LearnFile(b, sections); !errors.Is(err, ErrBlob) {
			t.Errorf("%d sections: %v", sections, err)
		}
	}
}

// Media is told from damage; so are the cells of another sequence in the middle of a state.
func TestFileMedia(t *testing.T) {
	good := smallSlot()
	f, err := LearnFile(good.encode(), 2)
	if err != nil {
		t.Fatal(err)
	}
	good.media, good.tokens = 1, []int32{7, -1, 9}
	if _, err := f.Parse(good.encode()); !errors.Is(err, ErrMedia) || errors.Is(err, ErrBlob) {
		t.Errorf("media: %v", err)
	}
	good = smallSlot()
	file := good.encode()
	good.sequence = 3
	other := good.encode()
	diff := 0
	for ; file[diff] == other[diff]; diff++ {
	}
	file[diff] = 3 // the first cell's
	if _, err := f.Parse(file); !errors.Is(err, ErrBlob) || !strings.Contains(err.Error(), "sequence of a cell") {
		t.Errorf("cells of two sequences: %v", err)
	}
}

// What a server saves of a slot that has never been used: no tokens, no cells, no checkpoints.
func TestFileOfEmptySlot(t *testing.T) {
	f, err := LearnFile(smallSlot().encode(), 2)
	if err != nil {
		t.Fatal(err)
	}
	empty := slot{version: 3, caches: []*cache{{streams: 1}, {streams: 1}}}.encode()
	if len(empty) != 44 {
		t.Fatalf("%d bytes, the server's has 44", len(empty))
	}
	file, err := f.Parse(empty)
	if err != nil || len(file.Tokens) != 0 || file.State.Sections[0].Count() != 0 {
		t.Fatalf("%+v, %v", file, err)
	}
	if _, again := f.Build(nil, file); !bytes.Equal(again, empty) {
		t.Error("built again it differs")
	}
	if _, err := LearnFile(empty, 2); !errors.Is(err, ErrBlob) {
		t.Errorf("learned from nothing: %v", err)
	}
	used := slot{version: 4, tokens: []int32{7}, recurrent: encodeRecurrent(0, 2, []int32{0, 0, 0, 0}, [][]byte{{1}, {2}, {}, {}})}
	if f, err = LearnFile(used.encode(), 0); err != nil {
		t.Fatal(err)
	}
	empty = slot{version: 4, recurrent: f.Recurrent.Empty()}.encode()
	if file, err = f.Parse(empty); err != nil || !bytes.Equal(file.Recurrent, f.Recurrent.Empty()) {
		t.Fatalf("%+v, %v", file, err)
	}
	if _, again := f.Build(nil, file); !bytes.Equal(again, empty) {
		t.Error("built again it differs")
	}
	if _, err := LearnFile(empty, 0); !errors.Is(err, ErrBlob) {
		t.Errorf("learned from no state: %v", err)
	}
}
