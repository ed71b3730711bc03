package db

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// quotaFS is a file system on which a user may have so many bytes: nobody is told what is left of them.
type quotaFS struct {
	vfs.FS
	t     *testing.T
	dir   string
	bytes int64
}

type quotaFile struct {
	vfs.File
	fs *quotaFS
}

func (f *quotaFS) Create(name string) (vfs.File, error) {
	file, err := f.FS.Create(name)
	return quotaFile{file, f}, err
}

func (f *quotaFS) Open(name string, readOnly bool) (vfs.File, error) {
	file, err := f.FS.Open(name, readOnly)
	if err != nil {
		return nil, err
	}
	return quotaFile{file, f}, nil
}

func (f quotaFile) Allocate(off, n int64) error {
	if used, _, _ := occupied(f.fs.t, f.fs.dir); used+n > f.fs.bytes {
		return vfs.ErrNoSpace
	}
	return f.File.Allocate(off, n)
}

// A disk that is full, though it says that there is room: puts and refs evict and try again, what they need themselves stays, and only
// where nothing may go they fail.
func TestPutsAndRefsEvictOnAFullDisk(t *testing.T) {
	o := options()
	o.HighWater, o.LowWater = 1, 1
	q := &quotaFS{FS: vfs.OS, t: t, dir: t.TempDir(), bytes: 24 << 20}
	o.fs = q
	s := open(t, q.dir, o)
	m := model(t, s, bulky())
	prompt := func(i int) kv.Prompt { return kv.Prompt{Tokens: tokens(i, 640)} }
	for i := range 200 {
		p := prompt(i)
		if _, err := m.Put(ctx, p, blank(bulky(), 640), PutOptions{}); err != nil {
			t.Fatalf("put %d: %v", i, err)
		}
		if n, why, err := m.Probe(ctx, p, MatchOptions{}); n != 640 || err != nil {
			t.Fatalf("put %d: %d tokens are there: %v, %v", i, n, why, err)
		}
	}
	if s.mustStats(t).Evicted == 0 {
		t.Fatal("nothing was evicted: this test shows nothing")
	}
	q.bytes = 0
	if err := m.SetRef(ctx, "pin", prompt(199), RefOptions{Pinned: true, Meta: make([]byte, MaxRefMeta)}); err != nil && !errors.Is(err, ErrNoSpace) {
		t.Fatal(err)
	}
	var refused error
	for i := 1000; i < 1200 && refused == nil; i++ { // what is reserved already is there to be used
		p := prompt(i)
		_, refused = m.Put(ctx, p, blank(bulky(), 640), PutOptions{})
	}
	if !errors.Is(refused, ErrNoSpace) {
		t.Fatalf("where nothing can be had: %v", refused)
	}
	p := prompt(2000)
	q.bytes = 24 << 20
	if _, err := m.Put(ctx, p, blank(bulky(), 640), PutOptions{}); err != nil {
		t.Fatalf("with room again: %v", err)
	}
}
