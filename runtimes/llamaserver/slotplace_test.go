package llamaserver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// Somebody who clears folders of temporary files removes that of a front: it is made again, and what is stored is restored.
func TestSlotFolderIsRemoved(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{SlotDir: t.TempDir()}, "-c", "2048", "-np", "1", "--cache-ram", "0")
	a, b := rig.Story("First", 8), rig.Story("Second", 8)
	for _, body := range []rig.Object{a, b} {
		r.Ask("/completion", body)
		r.Saved()
	}
	for range 2 {
		if err := os.RemoveAll(r.Front.SlotFolder()); err != nil {
			t.Fatal(err)
		}
		r.Front.Folder().DropSpare()
		for _, body := range []rig.Object{a, b, rig.Story("Third", 8)} {
			got := r.Ask("/completion", body)
			if body["prompt"] == a["prompt"] && !strings.HasPrefix(got.Header, "hit") {
				t.Errorf("without its folder: %s", got.Header)
			}
			r.Saved()
		}
	}
	if _, err := vfs.AcquireLock(filepath.Join(r.Front.SlotFolder(), "LOCK"), true); err == nil {
		t.Error("the folder is not locked: the next front will remove it")
	}
	if info, err := os.Stat(r.Front.SlotFolder()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info, err)
	}
}
