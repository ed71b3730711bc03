package index

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

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
	fsys := &failFS{FS: vfs.OS}
	o := testOptions(t.TempDir())
	o.FS = fsys
	ix := must(Create(o))(t)
	m := newModel()
	fill(t, ix, m, 1, 20)
	if err := ix.Checkpoint(context.Background(), Applied{LSN: 1}); err != nil {
		t.Fatal(err)
	}
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
		if err := ix.Compact(); err != nil {
			t.Fatal(err)
		}
	}
	if err := ix.Checkpoint(context.Background(), Applied{LSN: 2}); err != nil {
		t.Fatal(err)
	}
	v := ix.View()
	if err := m.compare(v); err != nil {
		t.Fatal(err)
	}
	v.Release()
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
	ix = must(Open(o))(t)
	defer ix.Close()
	v = ix.View()
	defer v.Release()
	if err := was.compare(v); err != nil || ix.Applied().LSN != 2 {
		t.Errorf("frame %d: %v", ix.Applied().LSN, err)
	}
	verifyClean(t, ix)
}

// A folder whose fsync failed is not synced again: nothing is written any more, whatever the next fsync would say.
func TestFailedSyncOfTheFolderIsNotRetried(t *testing.T) {
	fsys := &failFS{FS: vfs.OS}
	o := testOptions(t.TempDir())
	build(t, o, 30)
	o.FS = fsys
	ix := must(Open(o))(t)
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
	fsys := &failFS{FS: vfs.OS}
	o := testOptions(t.TempDir())
	o.FS = fsys
	ix := must(Create(o))(t)
	defer ix.Close()
	m := newModel()
	fill(t, ix, m, 1, 4000)
	if err := ix.Checkpoint(context.Background(), Applied{LSN: 1}); err != nil {
		t.Fatal(err)
	}
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
