package wal

import (
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// deafFS is a file system on which no read succeeds, behind the end of a file either.
type deafFS struct{ vfs.FS }

type deafFile struct{ vfs.File }

func (f deafFS) Open(name string, readOnly bool) (vfs.File, error) {
	file, err := f.FS.Open(name, readOnly)
	return deafFile{file}, err
}

func (deafFile) ReadAt([]byte, int64) (int, error) { return 0, syscall.EIO }

// What is to be written once more, and cannot be read, is left as it is: on a disk that is gone that ends, too.
func TestRewriteOfWhatCannotBeRead(t *testing.T) {
	m := newMemFS()
	log := must[*Log](t)(Create(memOptions(m), 1, 1, nil))
	must[uint64](t)(log.Append(2, []byte("first")))
	m = m.kill()
	if err := RewriteFiles(memOptions(deafFS{m})); err != nil {
		t.Error(err)
	}
	k := must[kept](t)(replayAll(memOptions(m)))
	if len(k.frames) != 1 {
		t.Errorf("%d frames", len(k.frames))
	}
}
