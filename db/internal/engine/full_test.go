package engine_test

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// A disk that is full, though it says that there is room: puts and refs evict and try again, what they need themselves stays, and only
// where nothing may go they fail.
func TestPutsAndRefsEvictOnAFullDisk(t *testing.T) {
	o := storetest.Options()
	o.HighWater, o.LowWater = 1, 1
	dir := t.TempDir()
	quota := int64(24 << 20) // nobody is told what is left of it
	disk := storetest.Failing(func(c storetest.Call) error {
		if c.Kind == "allocate" {
			if used, _, _ := storetest.Occupied(t, dir); used+c.N > quota {
				return vfs.ErrNoSpace
			}
		}
		return nil
	})
	s := storetest.OpenOn(t, disk, dir, o)
	m := storetest.Model(t, s, bulky())
	prompt := func(i int) kv.Prompt { return kv.Prompt{Tokens: crashtest.Tokens(i, 640)} }
	for i := range 200 {
		p := prompt(i)
		if _, err := m.Put(t.Context(), p, blank(bulky(), 640), db.PutOptions{}); err != nil {
			t.Fatalf("put %d: %v", i, err)
		}
		if n, why, err := m.Probe(t.Context(), p, db.MatchOptions{}); n != 640 || err != nil {
			t.Fatalf("put %d: %d tokens are there: %v, %v", i, n, why, err)
		}
	}
	if storetest.Stats(t, s).Evicted == 0 {
		t.Fatal("nothing was evicted: this test shows nothing")
	}
	quota = 0
	if err := m.SetRef(t.Context(), "pin", prompt(199), db.RefOptions{Pinned: true, Meta: make([]byte, db.MaxRefMeta)}); err != nil && !errors.Is(err, db.ErrNoSpace) {
		t.Fatal(err)
	}
	var refused error
	for i := 1000; i < 1200 && refused == nil; i++ { // what is reserved already is there to be used
		p := prompt(i)
		_, refused = m.Put(t.Context(), p, blank(bulky(), 640), db.PutOptions{})
	}
	if !errors.Is(refused, db.ErrNoSpace) {
		t.Fatalf("where nothing can be had: %v", refused)
	}
	p := prompt(2000)
	quota = 24 << 20
	if _, err := m.Put(t.Context(), p, blank(bulky(), 640), db.PutOptions{}); err != nil {
		t.Fatalf("with room again: %v", err)
	}
}

// blank returns rows for n positions that nobody looks at.
func blank(d kv.Descriptor, n int) kv.Rows {
	rows := make(kv.Rows, len(d.Tensors))
	for i, t := range d.Tensors {
		rows[i] = kv.Packed(0, n, make([]byte, n*t.RowBytes()))
	}
	return rows
}

// bulky is plain with blocks of 32 KiB, so that index and log take little beside them.
func bulky() kv.Descriptor {
	d := crashtest.Plain()
	d.Name, d.BlockTokens = "bulky", 64
	for i := range d.Tensors {
		d.Tensors[i].Width = 64
	}
	return d
}
