package wal

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// deafFS is a file system on which no read succeeds, behind the end of a file either.
type deafFS struct {
	vfs.FS
	why error
}

type deafFile struct {
	vfs.File
	why error
}

func (f deafFS) Open(name string, readOnly bool) (vfs.File, error) {
	file, err := f.FS.Open(name, readOnly)
	return deafFile{file, f.why}, err
}

func (f deafFile) ReadAt([]byte, int64) (int, error) { return 0, f.why }

// What is to be written once more, and the disk cannot read, is left as it is: on a disk that is gone that ends, too.
func TestRewriteOfWhatCannotBeRead(t *testing.T) {
	m := newMemFS()
	log := must[*Log](t)(Create(memOptions(m), 1, 1, nil))
	must[uint64](t)(log.Append(2, []byte("first")))
	m = m.kill()
	if err := RewriteFiles(memOptions(deafFS{m, syscall.EIO})); err != nil {
		t.Error(err)
	}
	k := must[kept](t)(replayAll(memOptions(m)))
	if len(k.frames) != 1 {
		t.Errorf("%d frames", len(k.frames))
	}
}

// What cannot be read just now may be in memory and not on the disk: it is not taken for written.
func TestRewriteOfWhatCannotBeReadJustNow(t *testing.T) {
	m := newMemFS()
	log := must[*Log](t)(Create(memOptions(m), 1, 1, nil))
	must[uint64](t)(log.Append(2, []byte("first")))
	m = m.kill()
	for _, why := range vfs.PassingErrors {
		if err := RewriteFiles(memOptions(deafFS{m, why})); !errors.Is(err, why) || !strings.Contains(err.Error(), "offset 0") {
			t.Errorf("%v: %v", why, err)
		}
	}
}
