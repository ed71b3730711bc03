package memdir

import (
	"os"
	"runtime"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// shm is where Linux has such a place.
const shm = "/dev/shm"

// enough is the room that must be left there.
const enough = 1 << 30

// Dir makes an empty folder for the length of a test, on the disk if there is no other place.
func Dir(t testing.TB) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		return t.TempDir()
	}
	if free, _, err := vfs.OS.Space(shm); err != nil || free < enough {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(shm, "dormouse")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
