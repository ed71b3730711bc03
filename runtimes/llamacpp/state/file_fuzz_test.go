package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/internal/fuzzkit"
)

// FuzzSlotFile: no file makes it panic or take much memory. What is understood is the same when it is built again; what is not
// is an ErrBlob or an ErrMedia.
func FuzzSlotFile(f *testing.F) {
	file := smallSlot()
	b := file.encode()
	one := slot{version: 3, plain: true, tokens: []int32{7, 8, 9}, caches: []*cache{small()}}
	media := smallSlot()
	media.media = 1
	said := slot{version: 4, tokens: []int32{7}, caches: []*cache{small(), small()}}
	for _, c := range said.caches {
		c.rotation = new([2]int)
	}
	part := encodeRecurrent(2, 2, []int32{0, 1}, [][]byte{{1, 2}, {3}})
	hybrid := slot{version: 4, tokens: []int32{7}, caches: said.caches[:1], recurrent: part, trailer: true, checkpoints: []slotCheckpoint{{tokens: 1, recurrent: part}}}
	recurrent := slot{version: 4, tokens: []int32{7}, recurrent: part}
	edit := func(off int, v uint32) []byte {
		c := bytes.Clone(b)
		binary.LittleEndian.PutUint32(c[off:], v)
		return c
	}
	trailer := bytes.Index(b, []byte("SCKP"))
	fuzzkit.Seeds(f,
		[]any{b, 2}, []any{one.encode(), 1}, []any{media.encode(), 2}, []any{said.encode(), 2}, []any{[]byte{}, 1}, []any{b[:len(b)-1], 2},
		[]any{edit(8, 1<<32-1), 2}, []any{edit(20, 1<<32-1), 2}, []any{edit(trailer+8, 1<<32-1), 2}, []any{edit(trailer+28, 1<<32-1), 2},
		[]any{edit(trailer+32, 1<<32-1), 2}, []any{b[:trailer], 2}, []any{b[:trailer+12], 2},
		[]any{hybrid.encode(), 1}, []any{recurrent.encode(), 0},
	)
	var known []FileFormat
	for sections, s := range []slot{recurrent, hybrid, file} {
		g, err := LearnFile(s.encode(), sections)
		if err != nil {
			f.Fatal(err)
		}
		known = append(known, g)
	}
	f.Fuzz(func(t *testing.T, b []byte, sections int) {
		fuzzkit.Bounded(t, 1<<20+uint64(300*len(b)), func() {
			if g, err := LearnFile(b, sections); err == nil {
				if _, err := g.Parse(b); err != nil {
					t.Fatalf("learned but not parsed: %v", err)
				}
				same(t, g, b)
			} else if !errors.Is(err, ErrBlob) && !errors.Is(err, ErrMedia) {
				t.Fatal(err)
			}
			for _, g := range known {
				same(t, g, b)
			}
		})
	})
}

// same says what must hold for a file that is parsed: it is the same, built again.
func same(t *testing.T, g FileFormat, b []byte) {
	file, err := g.Parse(b)
	if err != nil {
		if !errors.Is(err, ErrBlob) && !errors.Is(err, ErrMedia) {
			t.Fatal(err)
		}
		return
	}
	built, again := g.Build(nil, file)
	built.copyRows(file)
	if !bytes.Equal(b, again) {
		t.Fatalf("%d bytes differ when they are built again as %d", len(b), len(again))
	}
}
