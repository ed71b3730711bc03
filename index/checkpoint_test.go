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

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// TestLargeTree goes through trees of several levels, with many removals between checkpoints: what our reader and Verify take
// for granted about bbolt's pages (a branch repeats its children's first keys, unused bytes are zero, no overflow pages)
// must hold in all of them.
func TestLargeTree(t *testing.T) {
	ix := must(Create(testOptions(t.TempDir()), Applied{}))(t)
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
		ok(t, err)
		extra := make([]byte, r.IntN(100_000))
		ok(t, ix.Checkpoint(context.Background(), Applied{LSN: uint64(round), Extra: extra}))
		verifyClean(t, ix)
		boltCheck(t, ix)
	}
	before := ix.Bytes()
	ok(t, ix.Compact())
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
			ix, m := must(Create(o, Applied{}))(t), newModel()
			fill(t, ix, m, 1, 20)
			save(t, ix, 1)
			v, was := ix.View(), m.clone()
			fill(t, ix, m, 20, 300)
			err := ix.Checkpoint(context.Background(), Applied{LSN: 2})
			if open && err != nil || !open && !errors.Is(err, errBusy) {
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
				m.check(t, ix)
				ok(t, ix.Close())
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

// bbolt opens the file for the first commit and not before. While another process has the file, a checkpoint fails and is
// worth another try.
func TestBoltOpensForTheFirstCommit(t *testing.T) {
	o, ix, m := opened(t, 20)
	other, err := bolt.Open(o.Path, 0o600, &bolt.Options{Timeout: lockWait})
	if err != nil {
		t.Fatal("an index that was only read is locked:", err)
	}
	fill(t, ix, m, 20, 40)
	if err := ix.Checkpoint(context.Background(), Applied{LSN: 7}); !errors.Is(err, berrors.ErrTimeout) || ix.Err() != nil {
		t.Fatalf("a checkpoint of a file that is locked: %v, %v", err, ix.Err())
	}
	ok(t, other.Close())
	fill(t, ix, m, 40, 60)
	ix.Freeze()
	save(t, ix, 8)
	ok(t, ix.Close())
	ix = open(t, o)
	if m.check(t, ix); ix.Applied().LSN != 8 {
		t.Fatalf("frame %d", ix.Applied().LSN)
	}
}

// A file that another program has written to since it was opened is not written to, and rebuilt.
func TestWrittenByAnotherProgramSince(t *testing.T) {
	o, ix, m := opened(t, 300)
	other, err := bolt.Open(o.Path, 0o600, &bolt.Options{Timeout: lockWait})
	if err == nil {
		err = errors.Join(other.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketName).Put([]byte{tableBlock, 1}, []byte("x")) }), other.Close())
	}
	ok(t, err)
	fill(t, ix, m, 300, 310)
	if err := ix.Checkpoint(context.Background(), Applied{LSN: 7}); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	must(Create(o, Applied{}))(t).Close()
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

// failing is an empty index on a file system that can fail.
func failing(t *testing.T) (*failFS, Options, *Index, *model) {
	t.Helper()
	fsys, o := &failFS{FS: vfs.OS}, testOptions(t.TempDir())
	o.FS = fsys
	ix := must(Create(o, Applied{}))(t)
	t.Cleanup(func() { ix.Close() })
	return fsys, o, ix, newModel()
}

// TestFailedReplace: a compaction that fails changes nothing.
func TestFailedReplace(t *testing.T) {
	defer func() { replaceOpen = vfsReplaceOpen }()
	for _, replaceOpen = range []bool{true, false} {
		fsys, o, ix, m := failing(t)
		fill(t, ix, m, 1, 30)
		save(t, ix, 1)
		oops := errors.New("oops")
		fsys.rename = oops
		if err := ix.Compact(); !errors.Is(err, oops) {
			t.Fatal(err)
		}
		fsys.rename = nil
		m.check(t, ix)
		ok(t, ix.Compact())
		fsys.syncDir = oops // what a power cut would leave is not known
		if err := ix.Compact(); !errors.Is(err, oops) {
			t.Fatal(err)
		}
		if err := ix.Checkpoint(context.Background(), Applied{}); !errors.Is(err, oops) {
			t.Fatal("after a failed fsync:", err)
		}
		fsys.syncDir = nil
		ix.Close()
		m.check(t, open(t, o))
	}
}

// TestCommitErrors: a full disk can be tried again, after anything else nobody knows what is on the disk.
func TestCommitErrors(t *testing.T) {
	_, ix, _ := opened(t, 10)
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

// A checkpoint that writes a new file, whose folder cannot be opened to sync its name, fails and poisons nothing. Tried again it does
// that alone: what came meanwhile stays out of the file, because the log frames of that are replayed over it.
func TestFolderCannotBeOpenedForANewFile(t *testing.T) {
	for _, compacted := range []bool{false, true} {
		folderCannotBeOpened(t, compacted)
	}
}

func folderCannotBeOpened(t *testing.T, compacted bool) {
	testMapBytes = 64 << 10
	defer func() { testMapBytes = 0 }()
	fsys, o, ix, m := failing(t)
	fill(t, ix, m, 1, 20)
	save(t, ix, 1)
	fill(t, ix, m, 20, 300)
	was := m.clone()
	fsys.syncDir = vfs.ErrNotSynced
	for range 2 {
		if err := ix.Checkpoint(context.Background(), Applied{LSN: 2}); !errors.Is(err, vfs.ErrNotSynced) || ix.Err() != nil {
			t.Fatal(err, ix.Err())
		}
		fill(t, ix, m, 300, 320)
		if err := ix.Compact(); !errors.Is(err, vfs.ErrNotSynced) {
			t.Fatal(err)
		}
	}
	fsys.syncDir = nil
	if compacted {
		ok(t, ix.Compact())
	}
	save(t, ix, 2)
	m.check(t, ix)
	ok(t, ix.Close())
	ix = open(t, o)
	if was.check(t, ix); ix.Applied().LSN != 2 {
		t.Errorf("frame %d", ix.Applied().LSN)
	}
}

// A folder whose fsync failed is not synced again: nothing is written any more, whatever the next fsync would say.
func TestFailedSyncOfTheFolderIsNotRetried(t *testing.T) {
	fsys, _, ix, m := failing(t)
	fill(t, ix, m, 1, 30)
	save(t, ix, 1)
	fsys.syncDir = errors.New("oops")
	if err := ix.Compact(); !errors.Is(err, vfs.ErrPoisoned) {
		t.Fatal(err)
	}
	fsys.syncDir = nil
	for range 2 {
		if err := ix.Checkpoint(context.Background(), ix.Applied()); !errors.Is(err, vfs.ErrPoisoned) {
			t.Error("checkpoint:", err)
		}
		if err := ix.Compact(); !errors.Is(err, vfs.ErrPoisoned) {
			t.Error("compact:", err)
		}
	}
	ix.Close()
	if err := ix.Checkpoint(context.Background(), Applied{}); !errors.Is(err, ErrClosed) {
		t.Error("closed:", err)
	}
}

// A folder's fsync that says that the disk is full has failed like any other. It does not mean that a second file has no room: nothing
// is written to the one that has lost its name.
func TestFolderSyncSaysFull(t *testing.T) {
	defer func() { replaceOpen = vfsReplaceOpen }()
	for _, replaceOpen = range []bool{true, false} {
		for _, full := range []error{syscall.ENOSPC, fmt.Errorf("%w: %w", vfs.ErrNoSpace, syscall.ENOSPC)} {
			folderSyncFails(t, full)
		}
	}
}

func folderSyncFails(t *testing.T, full error) {
	fsys, _, ix, m := failing(t)
	fill(t, ix, m, 1, 4000)
	save(t, ix, 1)
	fill(t, ix, m, 4000, 9000)
	if !ix.base().worthReplacing(5000) {
		t.Fatal("the index is too small")
	}
	fsys.syncDir = full
	for range 2 {
		if err := ix.Checkpoint(context.Background(), Applied{LSN: 2}); !errors.Is(err, vfs.ErrPoisoned) || ix.Err() == nil {
			t.Errorf("%v: the checkpoint says %v, the index %v", full, err, ix.Err())
		}
		fsys.syncDir = nil
	}
}
