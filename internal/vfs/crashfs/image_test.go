package crashfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// After a power cut, every byte is what it was when its file was synced, or became since; what was synced is there whole;
// and a killed process loses nothing.
func TestPowerCutOfContents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := New(Options{Dir: "/disk"})
		f, _ := d.Create("/disk/f")
		d.SyncDir("/disk")
		var now []byte
		sure := map[int]byte{}     // of each byte, when it was synced; 0 where nothing was
		may := map[int][256]bool{} // what it was since
		sizes := []int{0}
		note := func(from, to int) {
			for i := from; i < to; i++ {
				b := may[i]
				if i < len(now) {
					b[now[i]] = true
				} else {
					b[0] = true
				}
				may[i] = b
			}
			sizes = append(sizes, len(now))
		}
		place := rapid.OneOf(rapid.IntRange(0, 20000), rapid.SampledFrom([]int{0, 512, 4096, 8192}))
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				off, b := place.Draw(t, "at"), pattern(rapid.IntRange(0, 99).Draw(t, "bytes"), rapid.IntRange(1, 6000).Draw(t, "n"))
				f.WriteAt(b, int64(off))
				old := len(now)
				now = append(now, make([]byte, max(0, off+len(b)-len(now)))...)
				copy(now[off:], b)
				note(min(old, off), off+len(b))
			},
			"truncate": func(t *rapid.T) {
				n, old := place.Draw(t, "to"), len(now)
				f.Truncate(int64(n))
				now = append(now, make([]byte, max(0, n-len(now)))...)[:n:n]
				note(min(n, old), max(n, old))
			},
			"punch": func(t *rapid.T) {
				off, n := place.Draw(t, "at"), place.Draw(t, "n")
				f.Punch(int64(off), int64(n))
				clear(now[min(off, len(now)):min(off+n, len(now))])
				note(off, min(off+n, len(now)))
			},
			"sync": func(t *rapid.T) {
				if rapid.IntRange(0, 2).Draw(t, "seldom") > 0 {
					t.Skip("a sync is to be rare: another step is drawn")
				}
				f.Sync()
				clear(sure)
				clear(may)
				for i, b := range now {
					sure[i] = b
				}
				sizes = []int{len(now)}
			},
			"": func(t *rapid.T) {
				rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "cut"), 0))
				cut, err := d.PowerCut(rnd, "/cut")
				if err != nil {
					t.Fatal(err)
				}
				got, err := vfs.ReadAll(cut, "/cut/f", 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				sized := false
				for _, n := range sizes {
					sized = sized || n == len(got)
				}
				if !sized {
					t.Fatalf("%d bytes, never one of %v", len(got), sizes)
				}
				for i, b := range got {
					if allowed := may[i]; b != sure[i] && !allowed[b] && b != 0 || b == 0 && sure[i] != 0 && may[i] == [256]bool{} {
						t.Fatalf("byte %d is %d, was %d when it was synced", i, b, sure[i])
					}
				}
				killed, err := d.Kill("/kill")
				if err != nil {
					t.Fatal(err)
				}
				if got, err := vfs.ReadAll(killed, "/kill/f", 1<<20); err != nil || !bytes.Equal(got, now) {
					t.Fatalf("a killed process left other bytes, %v", err)
				}
			},
		})
	})
}

// Pages cut in parts, whole ones and lost ones all occur, and so does every state of the names; none that was never there.
func TestPowerCutOfNames(t *testing.T) {
	d := New(Options{Dir: "/disk"})
	put := func(name string) {
		f := must[vfs.File](t)(d.Create("/disk/" + name))
		must[int](t)(f.WriteAt([]byte(name), 0))
		ok(t, f.Sync())
	}
	put("old")
	put("gone")
	ok(t, d.SyncDir("/disk"))
	put("tmp")
	ok(t, d.Rename("/disk/tmp", "/disk/old"))
	ok(t, d.Remove("/disk/gone"))
	ok(t, d.Mkdir("/disk/dir"))
	put("dir/file")
	ok(t, d.SyncDir("/disk/dir"))
	seen := map[string]bool{}
	for seed := range uint64(300) {
		cut := must[*Disk](t)(d.PowerCut(rand.New(rand.NewPCG(seed, 1)), "/cut"))
		names := must[[]string](t)(cut.List("/cut"))
		b := must[[]byte](t)(vfs.ReadAll(cut, "/cut/old", 10))
		in := must[[]string](t)(cut.List("/cut/dir"))
		seen[fmt.Sprint(names, " old=", string(b), " dir=", in)] = true
	}
	for _, dir := range []string{"", "dir "} {
		in := map[string]string{"": "[]", "dir ": "[file]"}[dir]
		for _, gone := range []string{"gone ", ""} {
			for _, end := range []string{"old] old=old", "old tmp] old=old", "old] old=tmp"} {
				want := "[" + dir + gone + end + " dir=" + in
				if !seen[want] {
					t.Errorf("never seen: %s", want)
				}
				delete(seen, want)
			}
		}
	}
	for s := range seen {
		t.Errorf("never there: %s", s)
	}
}

// After a sync that failed, another one that succeeds makes nothing durable of what the first should have written, until it
// is written again.
func TestFailedSync(t *testing.T) {
	d := New(Options{Dir: "/disk"})
	f := must[vfs.File](t)(d.Create("/disk/f"))
	ok(t, d.SyncDir("/disk"))
	must[int](t)(f.WriteAt(pattern(1, 3*pageBytes), 0))
	d.Before(func(Op) error { return errors.New("no") })
	if f.Sync() == nil {
		t.Fatal("it succeeded")
	}
	d.Before(nil)
	must[int](t)(f.WriteAt([]byte{9}, pageBytes)) // dirties one page anew
	ok(t, f.Sync())
	lost := [3]bool{}
	for seed := range uint64(50) {
		cut := must[*Disk](t)(d.PowerCut(rand.New(rand.NewPCG(seed, 1)), "/cut"))
		b := must[[]byte](t)(vfs.ReadAll(cut, "/cut/f", 1<<20))
		for p := range lost {
			lost[p] = lost[p] || b[p*pageBytes+100] == 0
		}
	}
	if lost != [3]bool{true, false, true} {
		t.Fatalf("lost are %v", lost)
	}
}

// From the crash on nothing happens any more.
func TestCrashAt(t *testing.T) {
	for k := range 7 {
		d := New(Options{Dir: "/disk"})
		d.CrashAt(k)
		f, err := d.Create("/disk/f")
		errs := []error{err}
		if err == nil {
			_, err := f.WriteAt(pattern(1, 100), 0)
			errs = append(errs, err, f.Sync(), d.SyncDir("/disk"), f.Truncate(0), d.Remove("/disk/f"))
		}
		for i, err := range errs {
			if errors.Is(err, ErrCrashed) != (i >= k) {
				t.Errorf("crash at %d: change %d: %v", k, i, err)
			}
		}
		if k < 6 != d.Crashed() {
			t.Errorf("crash at %d: crashed is %t", k, d.Crashed())
		}
		cut := must[*Disk](t)(d.PowerCut(rand.New(rand.NewPCG(1, 1)), "/cut"))
		if b, err := vfs.ReadAll(cut, "/cut/f", 1000); (k == 4 || k == 5) && (err != nil || k == 4 && len(b) != 100) {
			t.Errorf("crash at %d: %d bytes, %v", k, len(b), err)
		}
	}
}

// bbolt's promise, and so what its file's images must be like: at whatever moment the power is lost, it opens with the
// transaction or without, and never without one that was done.
func TestOutside(t *testing.T) {
	dir := t.TempDir()
	d := New(Options{Dir: dir, Outside: []string{"db", "db.tmp"}})
	mark := must[vfs.File](t)(d.Create(filepath.Join(dir, "mark")))
	db := must[*bolt.DB](t)(bolt.Open(filepath.Join(dir, "db"), 0o600, &bolt.Options{Timeout: time.Second, PageSize: pageBytes}))
	defer db.Close()
	commit := func(n uint64) {
		ok(t, db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			for i := range uint64(200) {
				if err == nil {
					err = b.Put(binary.BigEndian.AppendUint64(nil, i), pattern(int(n), 50))
				}
			}
			if err == nil {
				err = b.Put([]byte("n"), binary.BigEndian.AppendUint64(nil, n))
			}
			return err
		}))
	}
	images := func(low, high uint64) {
		t.Helper()
		seen := map[uint64]int{}
		for seed := range uint64(24) {
			to := t.TempDir()
			must[*Disk](t)(d.PowerCut(rand.New(rand.NewPCG(seed, 1)), to))
			db, err := bolt.Open(filepath.Join(to, "db"), 0o600, &bolt.Options{Timeout: time.Second, PageSize: pageBytes})
			if err != nil {
				t.Fatal(err)
			}
			ok(t, db.View(func(tx *bolt.Tx) error {
				for err := range tx.Check() {
					t.Error(err)
				}
				b := tx.Bucket([]byte("b"))
				seen[binary.BigEndian.Uint64(b.Get([]byte("n")))]++
				return nil
			}))
			ok(t, db.Close())
		}
		if len(seen) != int(high-low)+1 || seen[low] == 0 || seen[high] == 0 {
			t.Errorf("found %v, expected %d to %d", seen, low, high)
		}
	}
	commit(1)
	must[int](t)(mark.WriteAt([]byte{1}, 0))
	ok(t, d.SyncDir(dir))
	images(1, 1)
	for n := uint64(2); n < 5; n++ {
		commit(n)
		images(n-1, n)
		if n%2 == 0 {
			must[int](t)(mark.WriteAt([]byte{1}, 0))
		} else {
			d.Settle()
		}
		images(n, n)
	}
	// A new file takes the name only when the directory is synced.
	ok(t, db.Close())
	db = must[*bolt.DB](t)(bolt.Open(filepath.Join(dir, "db.tmp"), 0o600, &bolt.Options{Timeout: time.Second, PageSize: pageBytes}))
	commit(5)
	ok(t, d.Rename(filepath.Join(dir, "db.tmp"), filepath.Join(dir, "db")))
	images(4, 5)
	ok(t, d.SyncDir(dir))
	images(5, 5)
}
