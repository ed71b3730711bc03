package llamaserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// Somebody who clears folders of temporary files removes that of a front: it is made again, and what is stored is restored.
func TestSlotFolderIsRemoved(t *testing.T) {
	r := start(t, Options{SlotDir: t.TempDir()}, "-c", "2048", "-np", "1", "--cache-ram", "0")
	a, b := story("First", 8), story("Second", 8)
	for _, body := range []object{a, b} {
		r.ask("/completion", body)
		r.saved()
	}
	for range 2 {
		if err := os.RemoveAll(r.front.SlotFolder()); err != nil {
			t.Fatal(err)
		}
		r.front.folder.DropSpare()
		for _, body := range []object{a, b, story("Third", 8)} {
			got := r.ask("/completion", body)
			if body["prompt"] == a["prompt"] && !strings.HasPrefix(got.header, "hit") {
				t.Errorf("without its folder: %s", got.header)
			}
			r.saved()
		}
	}
	if _, err := vfs.AcquireLock(filepath.Join(r.front.SlotFolder(), "LOCK"), true); err == nil {
		t.Error("the folder is not locked: the next front will remove it")
	}
	if info, err := os.Stat(r.front.SlotFolder()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info, err)
	}
}
