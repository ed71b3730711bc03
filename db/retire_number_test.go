package db

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// shortFS is a file system on which files can be made, but nothing be reserved beyond their first blocks while short is set.
type shortFS struct {
	vfs.FS
	short *atomic.Bool
}

type shortFile struct {
	vfs.File
	fs shortFS
}

func (f shortFS) Create(name string) (vfs.File, error) {
	file, err := f.FS.Create(name)
	return shortFile{file, f}, err
}

func (f shortFile) Allocate(off, n int64) error {
	if f.fs.short.Load() && off > 0 {
		return vfs.ErrNoSpace
	}
	return f.File.Allocate(off, n)
}

// A segment that was retired is unlinked once: the next one does not get its number, though no frame of the log names a record in
// it. The log still lists it as to be unlinked after a kill.
func TestRetiredSegmentKeepsItsNumber(t *testing.T) {
	var short atomic.Bool
	o := options()
	o.fs = shortFS{vfs.OS, &short}
	dir := t.TempDir()
	s := open(t, dir, o)
	p := kv.Tokens(tokens(1, 64)...)
	m := model(t, s, plain())
	short.Store(true)
	if _, err := m.Put(ctx, p, filled(plain(), &p, 0, 64), PutOptions{}); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("put on a full disk: %v", err)
	}
	short.Store(false)
	if err := s.Retire(ctx, m.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	if n := len(s.eng.set.Segments()); n != 0 {
		t.Fatalf("%d segments are left", n)
	}
	s = open(t, copyStore(t, dir), options())
	m = model(t, s, plain())
	put(t, m, p)
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	expect(t, m, p, 64)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, s.Dir(), options())
	expect(t, model(t, s, plain()), p, 64)
}
