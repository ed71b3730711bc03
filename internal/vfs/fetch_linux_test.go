package vfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// coldFile is a mapped file of which nothing is in memory.
func coldFile(t *testing.T, size int64) (m *osMapping, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "cold")
	f := create(t, path, pattern(int(size)))
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.(*osFile).Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	x, err := f.Map(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	m = x.(*osMapping)
	if n := residentPages(m, 0, size); n > 0 {
		t.Skipf("SKIPPED: %d pages of a file of %s stay in memory: nothing can be read into it", n, t.TempDir())
	}
	return m, path
}

func residentPages(m *osMapping, from, to int64) (n int) {
	for off := from; off < to; off += int64(os.Getpagesize()) {
		if m.Resident(off) {
			n++
		}
	}
	return n
}

// What was fetched is in memory, and the second map that did it is gone.
func TestFetch(t *testing.T) {
	const mib, size = 1 << 20, 9<<20 + 777
	m, path := coldFile(t, size)
	m.Fetch(4*mib, 2*mib)
	page := int64(os.Getpagesize())
	if n := residentPages(m, 4*mib, 6*mib); int64(n) != 2*mib/page && !noPopulate.Load() {
		t.Errorf("%d of %d pages are in memory", n, 2*mib/page)
	}
	if n := residentPages(m, 0, 2*mib); n > 0 {
		t.Errorf("%d pages are in memory that nobody asked for", n)
	}
	m.Fetch(8*mib, 2*mib) // beyond the end
	if !m.Resident(size-1) && !noPopulate.Load() {
		t.Error("the last page is not in memory")
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(maps), path); n != 1 {
		t.Errorf("the file is mapped %d times", n)
	}
	mustEqual(t, "map", m.Bytes(), pattern(size))
}

// An older kernel is asked and not waited for.
func TestFetchOlderKernel(t *testing.T) {
	const size = 3 << 20
	m, _ := coldFile(t, size)
	defer noPopulate.Store(noPopulate.Swap(true))
	m.Fetch(0, size)
	mustEqual(t, "map", m.Bytes(), pattern(size))
}

// A file that somebody cut is noticed by who reads it, not by a fetch.
func TestFetchTruncated(t *testing.T) {
	const size = 6 << 20
	m, path := coldFile(t, size)
	if err := os.Truncate(path, 1<<20); err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{0, 2 << 20, 4 << 20} {
		m.Fetch(off, 2<<20)
	}
	mustEqual(t, "what is left", m.Bytes()[:1<<20], pattern(size)[:1<<20])
	if err := Guard(func() error { sink = m.Bytes()[4<<20]; return nil }); err == nil {
		t.Error("a page that is not there was read")
	}
}
