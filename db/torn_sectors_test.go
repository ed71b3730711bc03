package db

import (
	"os"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Of a record that a power cut tore, and whose frame it took, every page may begin with a sector that never reached the disk. What
// is behind that is as readable as the rest: a Sync leaves nothing of it.
func TestSectorsOfATornRecordAreDestroyed(t *testing.T) {
	tornRecordIsDestroyed(t, options(), plain(), func(image string, at index.Loc) {
		for page := at; page.Offset < at.Offset+at.Length; page.Offset += 4096 {
			zeroRecord(t, image, page, 512)
		}
	})
}

// On a disk that is given out in larger blocks than pages, the first page of a record, and nothing else of it, may be lost.
func TestTornRecordOnACoarseDiskIsDestroyed(t *testing.T) {
	o := options()
	o.fs = coarseOS{vfs.OS}
	wide := plain()
	for i := range wide.Tensors {
		wide.Tensors[i].Width = 512
	}
	tornRecordIsDestroyed(t, o, wide, func(image string, at index.Loc) { zeroRecord(t, image, at, 4096) })
}

func tornRecordIsDestroyed(t *testing.T, o Options, d kv.Descriptor, tear func(image string, at index.Loc)) {
	dir := t.TempDir()
	s := open(t, dir, o)
	m := model(t, s, d)
	put(t, m, kv.Tokens(tokens(1, 32)...))
	before := copyStore(t, dir)
	p := kv.Tokens(tokens(2, 16)...)
	put(t, m, p)
	at := placeOf(t, m, p, 0, 0)
	put(t, m, kv.Tokens(tokens(3, 16)...)) // a record behind it
	image := copyStore(t, dir)
	crash(s)
	if err := os.RemoveAll((&engine{dir: image}).path(walDir)); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS((&engine{dir: image}).path(walDir), os.DirFS((&engine{dir: before}).path(walDir))); err != nil {
		t.Fatal(err)
	}
	tear(image, at)
	cutPower(t, image, false)
	s = open(t, image, o)
	expect(t, model(t, s, d), kv.Tokens(tokens(1, 32)...), 32)
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(s.eng.segmentPath(at.Segment))
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	for _, c := range b[min(at.Offset, int64(len(b))):min(at.Offset+at.Length, int64(len(b)))] {
		if c != 0 {
			left++
		}
	}
	if left > 0 {
		t.Errorf("%d bytes are left of a record of %d at %d that nobody can find", left, at.Length, at.Offset)
	}
	soundly(t, s)
}
