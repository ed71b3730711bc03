package crashfs

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// A volume that is gone fails every call, and comes back without what was not durable; a file that was open stays useless, and can be closed.
func TestVolume(t *testing.T) {
	dir := t.TempDir()
	d := New(Options{Dir: dir, Outside: []string{"index"}})
	f := must[vfs.File](t)(d.Create(filepath.Join(dir, "f")))
	must[int](t)(f.WriteAt([]byte("safe"), 0))
	ok(t, errors.Join(f.Sync(), d.SyncDir(dir)))
	must[int](t)(f.WriteAt([]byte("lost"), 0))
	ok(t, os.WriteFile(filepath.Join(dir, "index"), []byte("there"), 0o600))
	old := must[*os.File](t)(os.OpenFile(filepath.Join(dir, "index"), os.O_RDWR, 0)) // as bbolt has it
	defer old.Close()
	ok(t, d.SyncDir(dir))
	d.Settle()
	d.Unplug()
	must[int](t)(old.WriteAt([]byte("never"), 0))
	_, opened := d.Open(filepath.Join(dir, "f"), true)
	_, wrote := f.WriteAt([]byte("x"), 0)
	for _, err := range []error{opened, wrote, f.Sync(), d.SyncDir(dir), d.Remove(filepath.Join(dir, "f"))} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("gone: %v", err)
		}
	}
	left, _, err := d.Cut(Loss{All: true}, t.TempDir())
	ok(t, err)
	if d.Went() {
		t.Error("it is not back yet")
	}
	ok(t, d.Plug(left))
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EIO) || !d.Went() {
		t.Errorf("a file that was open: %v; it went: %t", err, d.Went())
	}
	ok(t, f.Close())
	if got := string(must[[]byte](t)(vfs.ReadAll(d, filepath.Join(dir, "f"), 10))); got != "safe" {
		t.Errorf("found %q", got)
	}
	if got := string(must[[]byte](t)(os.ReadFile(filepath.Join(dir, "index")))); got != "there" {
		t.Errorf("found %q outside", got)
	}
	next := must[*Disk](t)(d.Kill(t.TempDir()))
	if !next.Went() {
		t.Error("the next process does not know that it went")
	}
}
