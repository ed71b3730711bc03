package vfs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNextData(t *testing.T) {
	var st unix.Statfs_t
	if unix.Statfs("/dev/shm", &st) != nil || st.Type != unix.TMPFS_MAGIC {
		t.Skip("SKIPPED: there is no tmpfs at /dev/shm")
	}
	dir, err := os.MkdirTemp("/dev/shm", "holes")
	if err != nil {
		t.Skip("SKIPPED: /dev/shm cannot be written: ", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	f, err := OS.Create(dir + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page := int64(os.Getpagesize())
	if err := f.Truncate(10 * page); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{1}, 3*page); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ off, data, hole int64 }{
		{0, 3 * page, 4 * page}, {3*page + 5, 3*page + 5, 4 * page}, {4 * page, 10 * page, 10 * page},
	} {
		data, hole, ok := f.(Sparse).NextData(c.off)
		if data != c.data || hole != c.hole || !ok {
			t.Errorf("at %d: data at %d, hole at %d, %t; expected %d and %d", c.off, data, hole, ok, c.data, c.hole)
		}
	}
}
