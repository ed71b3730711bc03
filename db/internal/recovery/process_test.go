package recovery_test

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// Processes that work on one disk, one after the other.

// crashCase is a store at work on a disk of its own.
func crashCase(t *testing.T, k crashMode) *crashRun {
	w := nextRun(t, crashtest.NewDisk(crashtest.NewDirs(t).Next()), k, newCrashJournal(k))
	w.steps(t, crashOp{kind: "open"})
	return w
}

// dies ends the process as a SIGKILL does, and returns the disk that the next one finds.
func (w *crashRun) dies(t *testing.T) *crashfs.Disk {
	t.Helper()
	w.d.Crash()
	w.kill()
	image, err := w.d.Kill(crashtest.NewDirs(t).Next())
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// nextRun is the process that comes next on a disk. It opens no store yet.
func nextRun(t *testing.T, d *crashfs.Disk, k crashMode, j *crashJournal) *crashRun {
	w := &crashRun{d: d, k: k, j: j}
	t.Cleanup(w.kill)
	return w
}

func (w *crashRun) steps(t *testing.T, ops ...crashOp) {
	t.Helper()
	for _, o := range ops {
		if err := w.step(o); err != nil {
			t.Fatal(err)
		}
	}
}

// cuts compares several of the states in which a power cut can leave w's disk with its journal.
func (w *crashRun) cuts(t *testing.T, n int) {
	t.Helper()
	dirs := crashtest.NewDirs(t)
	w.j.cut = true
	for seed := range uint64(n) {
		image, err := crashtest.CutAndReboot(w.d, rand.New(rand.NewPCG(seed, 5)), dirs)
		if err != nil {
			t.Fatal(err)
		}
		x := &crashRun{d: image, k: w.k}
		err = w.j.compare(x, !w.k.power)
		x.kill()
		os.RemoveAll(image.Dir())
		if err != nil {
			t.Fatalf("power cut %d: %v", seed, err)
		}
	}
}

func putAll() (ops []crashOp) {
	for c, x := range crashChats() {
		ops = append(ops, crashOp{kind: "put", chat: c, n: len(x.p.Tokens)})
	}
	return ops
}
