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

// Opening an index looks single pages up in the list of free ones. Whatever is wrong with that list is found before anything is
// written, by whoever reads more than a few pages, and by Verify.
func TestDamagedFreelistIsFoundLater(t *testing.T) {
	o := testOptions(t.TempDir())
	m := build(t, o, 2000)
	good, err := os.ReadFile(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	ix := must(Open(o))(t)
	list := ix.rows.base.list
	ids := bytes.Index(good, list.ids[len(list.ids)-16:]) // the last two
	if free := ix.rows.base.free.Load(); free != nil {
		t.Error("opening reads all of the list")
	}
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
	if len(list.ids) < 10*8 || ids < 0 {
		t.Fatalf("%d free pages, the last two at %d", len(list.ids)/8, ids)
	}
	use := map[string]func(ix *Index) error{
		"checkpoint": func(ix *Index) error {
			ix.rows.base.looked.Store(-1 << 20) // no read on the way checks the list
			if err := ix.Update(func(tx *Txn) error { return tx.Put(Entry{Key: key(1 << 20), Parent: key(1)}) }); err != nil {
				return err
			}
			return ix.Checkpoint(context.Background(), Applied{LSN: 99})
		},
		"reads": func(ix *Index) error {
			v := ix.View()
			defer v.Release()
			return m.compare(v)
		},
		"verify": func(ix *Index) (found error) {
			err := ix.Verify(context.Background(), func(d *damage.Error) { found = fail(d) }, func(int64) {})
			return errors.Join(err, found)
		},
	}
	for name, do := range use {
		bad := bytes.Clone(good)
		binary.LittleEndian.PutUint64(bad[ids+8:], binary.LittleEndian.Uint64(bad[ids:])) // one id twice
		if err := os.WriteFile(o.Path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		ix, err := Open(o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := do(ix); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		ix.Close()
		if now, err := os.ReadFile(o.Path); err != nil || !bytes.Equal(now, bad) {
			t.Errorf("%s: the file was changed (%v)", name, err)
		}
	}
}

// Verify reports a list that is damaged once, and looks at the tree all the same: what is wrong there is reported, too.
func TestVerifyGoesOnBehindADamagedFreelist(t *testing.T) {
	o := testOptions(t.TempDir())
	build(t, o, 2000)
	good := must(os.ReadFile(o.Path))(t)
	used := usedPages(t, o)
	ix := must(Open(o))(t)
	ids := bytes.Index(good, ix.rows.base.list.ids)
	end := ids + len(ix.rows.base.list.ids)
	pages := ix.rows.base.meta.pages
	if err := ix.Close(); err != nil || ids < 0 {
		t.Fatal(ids, err)
	}
	var leaves []int64
	for id, kind := range used {
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
			if err := os.WriteFile(o.Path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			ix := must(Open(o))(t)
			var found []int64
			if err := ix.Verify(context.Background(), func(d *damage.Error) { found = append(found, d.Offset) }, func(int64) {}); err != nil {
				t.Fatal(err)
			}
			list := int64(ix.rows.base.list.at) * pageBytes
			want := append([]int64{list}, hurt...)
			slices.Sort(want)
			if slices.Sort(found); !slices.Equal(found, want) {
				t.Errorf("%s, and %d leaves: reported at %d, expected %d", name, len(hurt), found, want)
			}
			ix.Close()
		}
	}
}

// A page of the tree that the list has among the free ones is damage, for an Open too, which never reads the whole list.
func TestFreePageInTheTree(t *testing.T) {
	o := testOptions(t.TempDir())
	build(t, o, 2000)
	ix := must(Open(o))(t)
	s := ix.rows.base
	list := s.list
	le := binary.LittleEndian
	at, page := -1, uint64(0) // the id that can be replaced by a page of the tree and leave the list in order
	for id := s.root; ; {     // down to the first leaf, which Open reads
		p := must(s.page(id))(t)
		for i := 8; i+16 <= len(list.ids); i += 8 {
			if le.Uint64(list.ids[i-8:]) < id && id < le.Uint64(list.ids[i+8:]) {
				at, page = i, id
			}
		}
		if p.leaf {
			break
		}
		id = p.child(0)
	}
	good, err := os.ReadFile(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	ids := bytes.Index(good, list.ids)
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
	if at < 0 || ids < 0 {
		t.Fatal("no page between free ones")
	}
	le.PutUint64(good[ids+at:], page)
	if err := os.WriteFile(o.Path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(o); !errors.Is(err, ErrDamaged) {
		t.Errorf("page %d is free: %v", page, err)
	}
}
