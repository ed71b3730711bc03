package db

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// coarseOS is the system's file system, on a disk that is given out in larger blocks than most.
type coarseOS struct{ vfs.FS }

func (c coarseOS) Space(dir string) (free uint64, blockBytes int, err error) {
	free, _, err = c.FS.Space(dir)
	return free, 16 << 10, err
}

// A segment whose header a power cut took is sealed also where its last record was of a put that was not acknowledged, and is
// destroyed by now: on a coarse disk nobody knew how long it was.
func TestHeaderLostBehindLastRecordOnCoarseDisk(t *testing.T) {
	dir := t.TempDir()
	o := options()
	o.fs = coarseOS{vfs.OS}
	s := open(t, dir, o)
	m := model(t, s, plain())
	p, q := kv.Tokens(tokens(1, 48)...), kv.Tokens(tokens(2, 32)...)
	put(t, m, q)
	put(t, m, p)
	before := copyStore(t, dir) // as if the kill came between the record and its frame
	put(t, m, kv.Tokens(concat(p.Tokens, tokens(9, 16))...))
	image := copyStore(t, dir)
	if err := os.RemoveAll(filepath.Join(image, walDir)); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(image, walDir), os.DirFS(filepath.Join(before, walDir))); err != nil {
		t.Fatal(err)
	}
	loseHeader(t, image)
	s = open(t, image, o)
	m = model(t, s, plain())
	if _, err := m.Delete(ctx, q); err != nil { // what waits to be destroyed is, before anything is sealed
		t.Fatal(err)
	}
	if err := s.Sync(ctx); err != nil {
		t.Error(err)
	}
	if err := s.Checkpoint(ctx); err != nil {
		t.Error(err)
	}
	expect(t, m, p, 48)
	for _, x := range s.eng.set.Segments() {
		if x.Err != nil || !x.Sealed && !x.Active {
			t.Errorf("%+v", x)
		}
	}
}
