package recovery_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// A disk that cannot read the end of a segment.
type badEndFS struct {
	vfs.FS
	from *atomic.Int64 // 0: it can
}

func (f badEndFS) Open(name string, readOnly bool) (vfs.File, error) {
	file, err := f.FS.Open(name, readOnly)
	if err != nil || !strings.HasSuffix(name, ".seg") {
		return file, err
	}
	return badEndFile{file, f}, nil
}

type badEndFile struct {
	vfs.File
	fs badEndFS
}

// Map maps a copy that ends where reading is to fail: a fault is how a map says so.
func (f badEndFile) Map(size int64) (vfs.Mapping, error) {
	from := f.fs.from.Load()
	if from == 0 {
		return f.File.Map(size)
	}
	b := make([]byte, from)
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, err
	}
	name := f.Name() + ".cut"
	if err := os.WriteFile(name, b, 0o600); err != nil {
		return nil, err
	}
	defer os.Remove(name)
	short, err := f.fs.FS.Open(name, true)
	if err != nil {
		return nil, err
	}
	defer short.Close()
	return short.Map(size)
}

// A record that no frame names, and that could not be read when the store was opened, keeps nothing from being sealed when it
// can be read again.
func TestSweepThatCouldNotReadAll(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	p, never := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}, kv.Prompt{Tokens: crashtest.Tokens(2, 64)}
	storetest.Put(t, m, p)
	var end int64
	for _, e := range storetest.Engine(s).Inside().OpenEnds() {
		end = e
	}
	used, _ := storetest.Engine(s).Inside().Wal().Room()
	storetest.Put(t, m, never)
	now, ahead := storetest.Engine(s).Inside().Wal().Room()
	log := filepath.Join(dir, storetest.LogDir, "0000000000000001.wal")
	b := storetest.Must(os.ReadFile(log))(t)
	frames := int64(len(b)) - ahead
	clear(b[frames-(now-used) : frames]) // killed before the last put was logged
	image := storetest.Copy(t, dir)
	storetest.OK(t, os.WriteFile(filepath.Join(image, storetest.LogDir, filepath.Base(log)), b, 0o600))

	o := storetest.Options()
	var from atomic.Int64
	from.Store(end)
	disk := badEndFS{vfs.OS, &from}
	s = storetest.OpenOn(t, disk, image, o)
	m = storetest.Model(t, s, crashtest.Plain())
	from.Store(0)
	storetest.Engine(s).Segments.Trim()
	for range 2 {
		if err := s.Checkpoint(t.Context()); err != nil {
			t.Error(err)
		}
	}
	storetest.Expect(t, m, p, 64)
	storetest.Expect(t, m, never, 0)
	storetest.Sound(t, s)
	storetest.OK(t, s.Close())
	storetest.Remove(t, image, storetest.IndexFile)
	s = storetest.Open(t, image, storetest.Options())
	m = storetest.Model(t, s, crashtest.Plain())
	storetest.Expect(t, m, p, 64)
	storetest.Expect(t, m, never, 0)
}
