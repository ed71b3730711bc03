package db

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// lockedFS is a file system on which one file cannot be opened while shut is set.
type lockedFS struct {
	vfs.FS
	base string
	shut *atomic.Bool
}

func (f lockedFS) Open(name string, readOnly bool) (vfs.File, error) {
	if filepath.Base(name) == f.base && f.shut.Load() {
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.EACCES}
	}
	return f.FS.Open(name, readOnly)
}

// A segment that cannot be opened keeps Verify from nothing but that segment: what is damaged in the others is named, the error
// says which one it was, and none of its records is called damaged, since nobody has seen them.
func TestVerifyGoesOnWhereASegmentCannotBeOpened(t *testing.T) {
	const first, other = "0000000000000001.seg", "0000000000000002.seg"
	var shut atomic.Bool
	o := options()
	o.fs = lockedFS{vfs.OS, first, &shut}
	dir := t.TempDir()
	s := open(t, dir, o)
	put(t, model(t, s, plain()), kv.Prompt{Tokens: tokens(1, 64)})
	put(t, model(t, s, windowed(40)), kv.Prompt{Tokens: tokens(2, 64)})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, segmentsDir, other), os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("damage"), 4096+600)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, o)
	shut.Store(true)
	rep, err := s.Verify(ctx, VerifyOptions{})
	shut.Store(false)
	if !errors.Is(err, syscall.EACCES) || !strings.Contains(err.Error(), first) || strings.Count(err.Error(), first) != 1 {
		t.Errorf("the error does not name what could not be opened, once: %v", err)
	}
	named := false
	for _, d := range rep.Damage {
		if filepath.Base(d.File) == first {
			t.Errorf("what nobody could read is called damaged: %v", d)
		}
		named = named || filepath.Base(d.File) == other
	}
	if !named {
		t.Errorf("the damage of %s is not named: %v", other, rep.Damage)
	}
}
