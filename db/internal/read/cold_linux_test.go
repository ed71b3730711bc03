package read_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// cool drops a store's segments from the page cache, and reports whether the file system lets it.
func cool(t *testing.T, dir string) bool {
	t.Helper()
	var fs unix.Statfs_t
	storetest.OK(t, unix.Statfs(dir, &fs))
	paths, err := filepath.Glob(filepath.Join(dir, storetest.SegmentsDir, "*.seg"))
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		f := storetest.Must(os.Open(path))(t)
		defer f.Close()
		storetest.OK(t, f.Sync())
		storetest.OK(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	}
	return fs.Type != unix.TMPFS_MAGIC
}

// resident reports whether the first and the last page of a record are in memory.
func resident(t *testing.T, dir string, b db.Block) bool {
	t.Helper()
	f := storetest.Must(vfs.OS.Open(storetest.SegmentPath(dir, b.Segment), true))(t)
	defer f.Close()
	end := b.Offset + b.Bytes
	m := storetest.Must(f.Map(end))(t)
	defer m.Close()
	in := func(off int64) bool { yes, known := vfs.Resident(m, off); return known && yes }
	return in(b.Offset) && in(end-1)
}
