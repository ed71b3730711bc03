package index

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
)

// A list of free pages that is damaged is found by Open, and by a checkpoint if the disk damaged it since: bbolt would trust it.
func TestDamagedFreelist(t *testing.T) {
	o, ix, _ := opened(t, 2000)
	good, _, end := listOf(t, ix)
	bad := bytes.Clone(good)
	copy(bad[end-8:end], bad[end-16:end-8]) // one id twice
	put(t, o.Path, bad)
	if _, err := Open(o); !errors.Is(err, ErrDamaged) {
		t.Error("open:", err)
	}
	put(t, o.Path, good)
	ix = open(t, o)
	put(t, o.Path, bad)
	ok(t, ix.Update(func(tx *Txn) error { return tx.Put(Entry{Key: key(1 << 20), Parent: key(1)}) }))
	if err := ix.Checkpoint(context.Background(), Applied{LSN: 99}); !errors.Is(err, ErrDamaged) {
		t.Error("checkpoint:", err)
	}
	if now := must(os.ReadFile(o.Path))(t); !bytes.Equal(now, bad) {
		t.Error("the file was changed")
	}
}

// listOf closes an index, and returns the bytes of its file, and where the ids of the free pages lie in them.
func listOf(t *testing.T, ix *Index) (b []byte, from, end int) {
	t.Helper()
	list := ix.rows.base.list
	b = must(os.ReadFile(ix.o.Path))(t)
	from = bytes.Index(b, list.ids)
	end = from + len(list.ids)
	if err := ix.Close(); err != nil || len(list.ids) < 10*8 || from < 0 {
		t.Fatalf("%d free pages at %d, %v", len(list.ids)/8, from, err)
	}
	return b, from, end
}

// Verify reports a list once that was damaged since the file was opened, and looks at the tree all the same: what is wrong there is reported, too.
func TestVerifyGoesOnBehindADamagedFreelist(t *testing.T) {
	o, ix, _ := opened(t, 2000)
	pages := ix.rows.base.meta.pages
	good, _, end := listOf(t, ix)
	var leaves []int64
	for id, kind := range usedPages(t, o) {
		if kind == "leaf" {
			leaves = append(leaves, int64(id)*pageBytes)
		}
	}
	slices.Sort(leaves)
	le := binary.LittleEndian
	for name, damageList := range map[string]func(b []byte){
		"an id twice":                  func(b []byte) { copy(b[end-8:end], b[end-16:end-8]) },
		"an id of no page":             func(b []byte) { le.PutUint64(b[end-8:], pages) },
		"something behind the last id": func(b []byte) { b[end+3] = 1 },
	} {
		for _, hurt := range [][]int64{nil, leaves[len(leaves)/2:][:1], leaves[len(leaves)-1:], {leaves[5], leaves[len(leaves)-5]}} {
			b := bytes.Clone(good)
			damageList(b)
			for _, off := range hurt {
				b[off+pageBytes-1] ^= 1 // of the last value, or behind it
			}
			put(t, o.Path, good)
			ix := open(t, o)
			put(t, o.Path, b)
			var found []int64
			ok(t, ix.Verify(context.Background(), func(d *damage.Error) { found = append(found, d.Offset) }, func(int64) {}))
			list := int64(ix.rows.base.list.at) * pageBytes
			want := append([]int64{list}, hurt...)
			slices.Sort(want)
			if slices.Sort(found); !slices.Equal(found, want) {
				t.Errorf("%s, and %d leaves: reported at %d, expected %d", name, len(hurt), found, want)
			}
		}
	}
}

// A page of the tree that the list has among the free ones is damage, for an Open that reads it, and for Verify.
func TestFreePageInTheTree(t *testing.T) {
	o, ix, _ := opened(t, 2000)
	s := ix.rows.base
	le := binary.LittleEndian
	replaceable := func(id uint64) int { // the id in the list that can be replaced by this one and leave the list in order
		for i := 8; i+16 <= len(s.list.ids); i += 8 {
			if le.Uint64(s.list.ids[i-8:]) < id && id < le.Uint64(s.list.ids[i+8:]) {
				return i
			}
		}
		return -1
	}
	at := map[uint64]int{} // of pages that Open reads, down to the first leaf
	for id := s.root; ; {
		p := must(s.page(id))(t)
		if i := replaceable(id); i >= 0 {
			at[id] = i
		}
		if p.leaf {
			break
		}
		id = p.child(0)
	}
	unread := uint64(0)
	for id := range s.meta.pages {
		if i := replaceable(id); i >= 0 && at[id] == 0 && !s.free.has(id) {
			unread, at[id] = id, i
			break
		}
	}
	good, ids, _ := listOf(t, ix)
	if len(at) < 2 || unread == 0 {
		t.Fatal("no page between free ones", at, unread)
	}
	for page, i := range at {
		b := bytes.Clone(good)
		le.PutUint64(b[ids+i:], page)
		put(t, o.Path, b)
		ix, err := Open(o)
		if page != unread && errors.Is(err, ErrDamaged) {
			continue
		}
		if page != unread || err != nil {
			t.Fatalf("page %d is free: %v", page, err)
		}
		found := false
		ok(t, ix.Verify(context.Background(), func(d *damage.Error) { found = found || d.Offset == int64(page*pageBytes) }, func(int64) {}))
		if !found {
			t.Errorf("page %d is free, and not reported", page)
		}
		ix.Close()
	}
}
