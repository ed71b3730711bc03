package index

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/dormousekv/dormouse/internal/damage"
)

// long is set to try every bit instead of some.
var long = os.Getenv("DORMOUSE_LONG") != ""

// TestBitFlips flips bits of index.db. Whatever it is: Open or a read fails, or all answers are right. And Verify finds the
// flip, if it is in a page that is used.
func TestBitFlips(t *testing.T) {
	dir := t.TempDir()
	o := testOptions(dir)
	const blocks = 60
	m := build(t, o, blocks)
	used := usedPages(t, o)
	clean := must(os.ReadFile(o.Path))(t)
	f := must(os.OpenFile(o.Path, os.O_RDWR, 0))(t)
	defer f.Close()

	var bitsTried, failedOpen, failedRead, unused, usedBits, verified int
	missed := map[string]int{}
	try := func(off int64, bit int) {
		bitsTried++
		must(f.WriteAt([]byte{clean[off] ^ 1<<bit}, off))(t)
		defer f.WriteAt(clean[off:off+1], off)
		kind := used[uint64(off/pageBytes)]
		if kind == "" {
			unused++
		} else {
			usedBits++
		}
		at := fmt.Sprintf("bit %d of byte %d (%s page %d)", bit, off, kind, off/pageBytes)

		ix, err := Open(o)
		if err != nil {
			if !errors.Is(err, ErrDamaged) || !errors.Is(err, damage.ErrCorrupt) {
				t.Fatalf("%s: Open: %v", at, err)
			}
			failedOpen++
			verified++
			return
		}
		found := false
		ok(t, ix.Verify(context.Background(), func(e *damage.Error) { found = true }, func(int64) {}))
		switch {
		case found && kind == "":
			t.Fatalf("%s: Verify complains about a free page", at)
		case found:
			verified++
			// Verify has poisoned it. Read it as if it had not.
			ix.rows.base.file.poison.Store(nil)
		case kind != "":
			missed[kind]++
		}
		v := ix.View()
		if err := compareAll(v, m, blocks); errors.Is(err, ErrDamaged) {
			failedRead++
			if _, _, again := v.Get(key(1), 0); !errors.Is(again, ErrDamaged) {
				t.Fatalf("%s: a damaged index still answers: %v", at, again)
			}
			if err := ix.Update(func(*Txn) error { return nil }); !errors.Is(err, ErrDamaged) {
				t.Fatalf("%s: a damaged index can still be changed: %v", at, err)
			}
		} else if err != nil {
			t.Fatalf("%s: wrong answer: %v", at, err)
		}
		v.Release()
		ok(t, ix.Close())
	}

	r := rand.New(rand.NewPCG(3, 4))
	for id := uint64(0); id < uint64(len(clean))/pageBytes; id++ {
		if used[id] == "" && id >= 40 {
			continue // the empty end of the file
		}
		for i := int64(0); i < pageBytes; i++ {
			off := int64(id)*pageBytes + i
			switch inUse := used[id] != ""; {
			case inUse && i < 400 && long:
				for bit := range 8 {
					try(off, bit)
				}
			case inUse && (i < 32 || long), r.IntN(150) == 0:
				try(off, r.IntN(8)) // headers and first elements, and now and then another
			}
		}
	}
	t.Logf("%d bits: %d fail Open, %d fail a read, %d in unused pages", bitsTried, failedOpen, failedRead, unused)
	t.Logf("Verify or Open report %d of %d bits in used pages; missed %v", verified, usedBits, missed)
	if len(missed) > 0 {
		t.Errorf("Verify missed flips in used pages: %v", missed)
	}
	if slices.Compare(clean, must(os.ReadFile(o.Path))(t)) != 0 {
		t.Fatal("reading changed the file")
	}
}

// TestCheckpointOnDamage writes to a file with damaged bytes: bbolt must not bring the process down.
func TestCheckpointOnDamage(t *testing.T) {
	dir := t.TempDir()
	o := testOptions(dir)
	const blocks = 300
	build(t, o, blocks)
	used := usedPages(t, o)
	clean := must(os.ReadFile(o.Path))(t)
	r := rand.New(rand.NewPCG(5, 6))
	tries, refused, damaged := 150, 0, 0
	if long {
		tries = 20000
	}
	if testing.Short() {
		tries = 30
	}
	ids := []uint64{}
	for id, kind := range used {
		ids = append(ids, id)
		if kind != "leaf" { // there are many leaves
			ids = append(ids, id, id, id, id)
		}
	}
	slices.Sort(ids)
	for range tries {
		b := slices.Clone(clean)
		off := int64(ids[r.IntN(len(ids))]) * pageBytes
		switch r.IntN(3) {
		case 0: // a bit in the header or the elements
			i := off + r.Int64N(16*20)
			b[i] ^= 1 << r.IntN(8)
		case 1: // a number
			binary.LittleEndian.PutUint64(b[off+8*r.Int64N(60):], ids[r.IntN(len(ids))])
		case 2: // another page in its place
			copy(b[off+8:off+pageBytes], clean[int64(ids[r.IntN(len(ids))])*pageBytes+8:][:pageBytes-8])
		}
		o := testOptions(t.TempDir())
		put(t, o.Path, b)
		ix, err := Open(o)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrForeign) {
				t.Fatal(err)
			}
			refused++
			continue
		}
		err = ix.Update(func(tx *Txn) error {
			for n := range 100 {
				if err := tx.Remove(key(r.IntN(blocks)), 0); err != nil {
					return err
				}
				if err := tx.Put(randomEntry(r, blocks+n)); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			err = ix.Checkpoint(context.Background(), Applied{LSN: 9})
		}
		if err == nil {
			err = ix.Compact()
		}
		if errors.Is(err, ErrDamaged) {
			damaged++
		} else if err != nil {
			t.Fatal(err)
		}
		ix.Close()
		// Whatever state bbolt is in: a new index takes the file's place.
		ix = must(Create(o, Applied{}))(t)
		ok(t, ix.Close())
	}
	t.Logf("%d damaged files: %d not opened, %d failed later", tries, refused, damaged)
}

// TestTruncation cuts the file, closed and open.
func TestTruncation(t *testing.T) {
	dir := t.TempDir()
	o := testOptions(dir)
	const blocks = 60
	m := build(t, o, blocks)
	used := usedPages(t, o)
	last := uint64(0)
	for id := range used {
		last = max(last, id)
	}
	clean := must(os.ReadFile(o.Path))(t)
	sizes := []int64{0, 1, 4095, 4096, 8192, 16383}
	for size := int64(0); size <= int64(last+1)*pageBytes; size += pageBytes / 2 {
		sizes = append(sizes, size)
	}
	for _, size := range sizes {
		put(t, o.Path, clean[:size])
		ix, err := Open(o)
		if err == nil {
			v := ix.View()
			if err := compareAll(v, m, blocks); err != nil {
				t.Fatalf("file of %d bytes opens, but %v", size, err)
			}
			v.Release()
			ix.Close()
		} else if !errors.Is(err, ErrDamaged) {
			t.Fatalf("file of %d bytes: %v", size, err)
		}

		// While it is open: reads fault. bbolt may keep its lock after that, so each try has a file of its own.
		os.Remove(o.Path)
		put(t, o.Path, clean)
		ix = must(Open(o))(t)
		ok(t, os.Truncate(o.Path, size))
		v := ix.View()
		if err := compareAll(v, m, blocks); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatalf("truncated to %d bytes while open: %v", size, err)
		}
		if err := ix.Update(func(tx *Txn) error { return tx.Put(Entry{Key: key(1)}) }); err == nil {
			if err := ix.Checkpoint(context.Background(), Applied{}); err != nil && !errors.Is(err, ErrDamaged) {
				t.Fatalf("checkpoint after truncation to %d bytes: %v", size, err)
			}
		}
		v.Release()
		ix.Close()
		os.Remove(o.Path)
	}
}

// TestOpenErrors: each reason to rebuild has its own error.
func TestOpenErrors(t *testing.T) {
	o := testOptions(t.TempDir())
	if _, err := Open(o); !errors.Is(err, ErrMissing) {
		t.Error("no file:", err)
	}
	build(t, o, 5)
	clean := must(os.ReadFile(o.Path))(t)
	put := func(b []byte) {
		put(t, o.Path, b)
	}
	foreign := o
	foreign.UUID[0]++
	if _, err := Open(foreign); !errors.Is(err, ErrForeign) || errors.Is(err, ErrDamaged) {
		t.Error("foreign:", err)
	}
	put(nil)
	if _, err := Open(o); !errors.Is(err, ErrDamaged) {
		t.Error("empty file:", err)
	}
	b := slices.Clone(clean)
	b[pageHeaderBytes]++
	put(b)
	if _, err := Open(o); !errors.Is(err, ErrDamaged) || errors.Is(err, ErrVersion) {
		t.Error("magic:", err)
	}
	b = slices.Clone(clean)
	b[pageHeaderBytes+4]++
	put(b)
	if _, err := Open(o); !errors.Is(err, ErrDamaged) || !errors.Is(err, ErrVersion) {
		t.Error("bbolt's version:", err)
	}

	// Another bbolt file: whole, but without our bucket. And ours with another format version.
	os.Remove(o.Path)
	db := must(bolt.Open(o.Path, 0o600, &bolt.Options{PageSize: pageBytes, Timeout: time.Second}))(t)
	ok(t, db.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("other")); return err }))
	db.Close()
	if _, err := Open(o); !errors.Is(err, ErrForeign) || errors.Is(err, ErrDamaged) {
		t.Error("no bucket:", err)
	}
	os.Remove(o.Path)
	for _, off := range []int{0, 4, 7, 92, 95} { // the version, and what is zero in it
		payload := appendStore(nil, &storeRow{UUID: testUUID})
		payload[off]++
		ok(t, writeFile(o.withDefaults(), o.Path, func(put func(k, v []byte) error) error {
			return errors.Join(put(storeKey, payload), put(endKey, empty))
		}))
		if _, err := Open(o); !errors.Is(err, ErrVersion) || errors.Is(err, ErrForeign) || errors.Is(err, ErrDamaged) {
			t.Errorf("byte %d of the store row: %v", off, err)
		}
	}
	if _, err := Open(Options{Path: filepath.Join(t.TempDir(), "x", "y")}); !errors.Is(err, ErrMissing) || errors.Is(err, fs.ErrPermission) {
		t.Error("no directory:", err)
	}
	ix := must(Create(o, Applied{}))(t)
	defer ix.Close()
	verifyClean(t, ix)
}

// TestLeakedLock: after a panic inside bbolt its lock on the file may stay. A new index has a new file.
func TestLeakedLock(t *testing.T) {
	o := testOptions(t.TempDir())
	m := build(t, o, 20)
	ix := must(Open(o))(t)
	v := ix.View()
	file := ix.rows.base.file
	ok(t, file.ready(ix.rows.base))
	err := file.contain("commit", func() error {
		return file.db.Update(func(tx *bolt.Tx) error { panic("as bbolt does on a damaged page") })
	})
	if !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	if _, _, err := v.Get(key(1), 0); !errors.Is(err, ErrDamaged) {
		t.Fatal("after a panic:", err)
	}
	if _, err := bolt.Open(o.Path, 0o600, &bolt.Options{Timeout: 50 * time.Millisecond}); err == nil {
		t.Fatal("the lock is free: this test tests nothing")
	}
	ix2 := must(Create(o, Applied{}))(t) // though neither the view nor the index are closed
	putAll(t, ix2, m.sorted())
	save(t, ix2, 1)
	v.Release()
	ix.Close()
	verifyClean(t, ix2)
	v = ix2.View()
	ok(t, m.compare(v))
	v.Release()
	ok(t, ix2.Close())
}
