package vfs

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// aligned is n bytes as a read around the page cache needs them.
func aligned(n int) []byte {
	b := make([]byte, n+DirectAlign)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (DirectAlign - 1))
	return b[skip : skip+n]
}

// directDirs are folders in memory and on a disk.
func directDirs(t *testing.T) map[string]string {
	dirs := map[string]string{"temporary": t.TempDir()}
	for _, at := range []string{"/dev/shm", "/var/tmp"} {
		if dir, err := os.MkdirTemp(at, "dormouse"); err == nil {
			dirs[at] = dir
			t.Cleanup(func() { os.RemoveAll(dir) })
		}
	}
	return dirs
}

// A read around the page cache sees what was written, synced or not, by pwrite, beside a map of the same file; it ends where the file
// does. So it is on file systems that refuse such reads.
func TestDirectReadsSeeWhatWasWritten(t *testing.T) {
	for at, dir := range directDirs(t) {
		t.Run(at, func(t *testing.T) {
			name := filepath.Join(dir, "f")
			f, err := OS.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			const size = 1<<20 + 1000
			want := make([]byte, size)
			if err := f.Allocate(0, size); err != nil {
				t.Fatal(err)
			}
			m, err := f.Map(size)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			d, err := OpenDirect(OS, name)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			r := rand.New(rand.NewPCG(1, 2))
			b := aligned(64 << 10)
			for i := range 300 {
				n, off := 1+r.IntN(9000), int64(r.IntN(size-9001))
				for k := range n {
					want[off+int64(k)] = byte(r.Uint32())
				}
				if _, err := f.WriteAt(want[off:off+int64(n)], off); err != nil {
					t.Fatal(err)
				}
				if i%10 == 0 {
					if err := f.Sync(); err != nil {
						t.Fatal(err)
					}
				}
				if i%20 == 0 {
					dropPages(t, name)
				}
				from := off / DirectAlign * DirectAlign
				n, err := d.ReadAt(b, from)
				if end := min(from+int64(len(b)), size); int64(n) != end-from || !bytes.Equal(b[:n], want[from:end]) || (err == nil) != (n == len(b)) {
					t.Fatalf("%d bytes at %d, %v, or others than were written", n, from, err)
				}
			}
			if !bytes.Equal(m.Bytes(), want) {
				t.Error("the map has other bytes than were written")
			}
			if n, err := d.ReadAt(b, AlignDirect(size)); n != 0 || err == nil {
				t.Errorf("behind the end: %d bytes, %v", n, err)
			}
			if err := f.Truncate(100); err != nil {
				t.Fatal(err)
			}
			if n, err := d.ReadAt(b, 0); n != 100 || err == nil || !bytes.Equal(b[:n], want[:n]) {
				t.Errorf("of a file that was cut: %d bytes, %v", n, err)
			}
		})
	}
}

// dropPages has the kernel forget a file's pages, where it can.
func dropPages(t *testing.T, name string) {
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Sync()
	unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// What is no regular file is not opened: that would wait, or follow a link.
func TestDirectOpensRegularFilesOnly(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "pipe", "."} {
		if _, err := OpenDirect(OS, filepath.Join(dir, name)); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := OpenDirect(OS, filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := OpenDirect(struct{ FS }{OS}, filepath.Join(dir, "file")); !errors.Is(err, errors.ErrUnsupported) {
		t.Error("a file system without such reads:", err)
	}
}

// What was dropped is missing, what was read is not.
func TestMissing(t *testing.T) {
	for at, dir := range directDirs(t) {
		t.Run(at, func(t *testing.T) {
			const size = 4 << 20
			name := filepath.Join(dir, "f")
			if err := os.WriteFile(name, bytes.Repeat([]byte{1}, size), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := OS.Open(name, true)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			m, err := f.Map(size)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if n, known := Missing(m, 0, size); n != 0 || !known {
				t.Errorf("%d bytes are missing of what was just written, %t", n, known)
			}
			dropPages(t, name)
			var st unix.Statfs_t
			if err := unix.Statfs(dir, &st); err != nil {
				t.Fatal(err)
			}
			want := int64(size)
			if st.Type == unix.TMPFS_MAGIC {
				want = 0
			}
			if n, known := Missing(m, 0, size); n != want || !known {
				t.Errorf("%d bytes of %d are missing after they were dropped, %t", n, size, known)
			}
			if _, known := Missing(m, size, 1); known {
				t.Error("behind the end nothing is known")
			}
		})
	}
}
