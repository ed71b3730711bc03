package index

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// TestLargeTree goes through trees of several levels, with many removals between checkpoints: what our reader and Verify take
// for granted about bbolt's pages (a branch repeats its children's first keys, unused bytes are zero, no overflow pages)
// must hold in all of them.
func TestLargeTree(t *testing.T) {
	ix := must(Create(testOptions(t.TempDir())))(t)
	defer ix.Close()
	r := rand.New(rand.NewPCG(7, 8))
	keys, rounds := 6000, 8
	if testing.Short() {
		keys, rounds = 1500, 4
	}
	if long {
		keys, rounds = 60000, 30
	}
	for round := range rounds {
		err := ix.Update(func(tx *Txn) error {
			for range keys / 3 {
				n := 1 + r.IntN(keys)
				if round%3 == 2 { // take most of it away
					if err := tx.Remove(key(n), 0); err != nil {
						return err
					}
				}
				if round%3 != 2 || n%10 == 0 {
					if err := tx.Put(randomEntry(r, n)); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		extra := make([]byte, r.IntN(100_000))
		if err := ix.Checkpoint(context.Background(), Applied{LSN: uint64(round), Extra: extra}); err != nil {
			t.Fatal(err)
		}
		verifyClean(t, ix)
		boltCheck(t, ix)
	}
	before := ix.Bytes()
	if err := ix.Compact(); err != nil {
		t.Fatal(err)
	}
	verifyClean(t, ix)
	boltCheck(t, ix)
	if after := ix.Bytes(); after > before {
		t.Errorf("compacted from %d to %d bytes", before, after)
	}
}

// TestGrowth fills an index beyond its map while a view is held, which would keep bbolt waiting for ever.
func TestGrowth(t *testing.T) {
	for _, open := range []bool{true, false} {
		t.Run(fmt.Sprintf("replaceOpen=%v", open), func(t *testing.T) {
			testMapBytes = 64 << 10
			replaceOpen, busyWait = open, 20*time.Millisecond
			defer func() { testMapBytes, replaceOpen, busyWait = 0, vfsReplaceOpen, 10*time.Second }()

			o := testOptions(t.TempDir())
			ix := must(Create(o))(t)
			m := newModel()
			fill(t, ix, m, 1, 20)
			if err := ix.Checkpoint(context.Background(), Applied{LSN: 1}); err != nil {
				t.Fatal(err)
			}
			v, was := ix.View(), m.clone()
			fill(t, ix, m, 20, 300)
			err := ix.Checkpoint(context.Background(), Applied{LSN: 2})
			if open && err != nil || !open && !errors.Is(err, ErrBusy) {
				t.Fatal("checkpoint under a view:", err)
			}
			if err := was.compare(v); err != nil {
				t.Fatal("held view:", err)
			}
			v.Release()
			if !open {
				if got := ix.Applied().LSN; got != 1 {
					t.Fatal("applied", got)
				}
				if err := ix.Checkpoint(context.Background(), Applied{LSN: 2}); err != nil {
					t.Fatal("checkpoint after the view:", err)
				}
			}
			for range 2 {
				v = ix.View()
				if err := m.compare(v); err != nil {
					t.Fatal(err)
				}
				v.Release()
				verifyClean(t, ix)
				if err := ix.Close(); err != nil {
					t.Fatal(err)
				}
				ix = must(Open(o))(t)
			}
			if got := ix.Applied().LSN; got != 2 {
				t.Error("applied", got)
			}
			if _, err := os.Stat(o.Path + ".tmp"); err == nil {
				t.Error("temporary file left behind")
			}
			ix.Close()
		})
	}
}

var vfsReplaceOpen = replaceOpen

// failFS fails one kind of operation.
type failFS struct {
	vfs.FS
	rename, syncDir error
}

func (f *failFS) Rename(old, new string) error {
	if f.rename != nil {
		return f.rename
	}
	return f.FS.Rename(old, new)
}

func (f *failFS) SyncDir(dir string) error {
	if f.syncDir != nil {
		return f.syncDir
	}
	return f.FS.SyncDir(dir)
}

// TestFailedReplace: a compaction that fails changes nothing.
func TestFailedReplace(t *testing.T) {
	for _, open := range []bool{true, false} {
		replaceOpen = open
		o := testOptions(t.TempDir())
		m := build(t, o, 30)
		fsys := &failFS{FS: vfs.OS}
		o.FS = fsys
		ix := must(Open(o))(t)
		oops := errors.New("oops")
		fsys.rename = oops
		if err := ix.Compact(); !errors.Is(err, oops) {
			t.Fatal(err)
		}
		fsys.rename = nil
		verifyClean(t, ix)
		v := ix.View()
		if err := m.compare(v); err != nil {
			t.Fatal(err)
		}
		v.Release()
		if err := ix.Compact(); err != nil {
			t.Fatal(err)
		}
		fsys.syncDir = oops // what a power cut would leave is not known
		if err := ix.Compact(); !errors.Is(err, oops) {
			t.Fatal(err)
		}
		if err := ix.Checkpoint(context.Background(), Applied{}); !errors.Is(err, oops) {
			t.Fatal("after a failed fsync:", err)
		}
		fsys.syncDir = nil
		ix.Close()
		ix = must(Open(o))(t)
		verifyClean(t, ix)
		ix.Close()
	}
	replaceOpen = vfsReplaceOpen
}

// TestCommitErrors: a full disk can be tried again, after anything else nobody knows what is on the disk.
func TestCommitErrors(t *testing.T) {
	o := testOptions(t.TempDir())
	build(t, o, 10)
	ix := must(Open(o))(t)
	defer ix.Close()
	j := must(ix.job(&Applied{}))(t)
	defer j.release()
	if err := j.failed(fmt.Errorf("write: %w", syscall.ENOSPC)); !errors.Is(err, vfs.ErrNoSpace) || j.base.file.writable() != nil {
		t.Error("full disk:", err, j.base.file.writable())
	}
	if err := j.failed(os.ErrInvalid); !errors.Is(err, os.ErrInvalid) || !errors.Is(j.base.file.writable(), os.ErrInvalid) || errors.Is(err, ErrDamaged) {
		t.Error("other error:", err, j.base.file.writable())
	}
	if err := ix.Update(func(*Txn) error { return nil }); !errors.Is(err, os.ErrInvalid) {
		t.Error("update after a failed fsync:", err)
	}
	v := ix.View()
	defer v.Release()
	if _, _, err := v.Get(key(1), 0); err != nil {
		t.Error("read after a failed fsync:", err)
	}
}
