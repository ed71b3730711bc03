package db

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// However a disk that cannot sync ends the first opens of a store, and whatever a power cut leaves of them, the next one opens it.
func TestFirstOpensOnADiskThatCannotSync(t *testing.T) {
	dirs := newCrashDirs(t)
	for first := 0; ; first++ {
		d := newCrashDisk(dirs.Next())
		syncs := failBehind(d, first, func(op crashfs.Op) bool {
			return op.Kind == "sync" || op.Kind == "syncdir"
		}, diskFails)
		for range 2 {
			w := &crashRun{d: d, k: crashModes[0]}
			w.open()
			w.kill()
		}
		for seed := range uint64(12) {
			image, err := d.PowerCut(rand.New(rand.NewPCG(seed, 3)), dirs.Next())
			if err != nil {
				t.Fatal(err)
			}
			x := &crashRun{d: image, k: crashModes[0]}
			if err := x.open(); err != nil {
				t.Errorf("%d syncs were done, image %d: %v", first, seed, err)
			}
			x.kill()
			os.RemoveAll(image.Dir())
		}
		os.RemoveAll(d.Dir())
		if syncs.Load() <= int64(first) {
			break
		}
	}
}

// A name that is empty, as of a variable that is not set, is not the current directory.
func TestOpenWithoutAName(t *testing.T) {
	t.Chdir(t.TempDir())
	if s, err := Open(ctx, "", options()); err == nil {
		s.Close()
		t.Error("a store was made in the current directory")
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}
