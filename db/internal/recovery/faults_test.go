package recovery_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// diskFault is a way in which a call of the disk fails.
type diskFault struct {
	name  string
	err   error
	kinds string // of calls; "" for all
	stays bool   // all calls of these kinds fail from then on
}

// cause is what every error must name.
func (f diskFault) cause() error {
	if errors.Is(f.err, syscall.ENOSPC) {
		return syscall.ENOSPC
	}
	return syscall.EIO
}

// What the disk says. The text is searched for in the store's errors.
var (
	errDisk     = fmt.Errorf("injected: %w", syscall.EIO)
	errDiskFull = fmt.Errorf("injected: %w", syscall.ENOSPC)
)

const spaceKinds = "write allocate create rename mkdir"

var diskFaults = []diskFault{
	{name: "I/O error", err: errDisk},
	{name: "full once", err: errDiskFull, kinds: spaceKinds},
	{name: "half", err: errDisk, kinds: "read write"},
	{name: "half, full", err: errDiskFull, kinds: "write"},
	{name: "done and failed", err: &crashfs.Late{Err: errDisk}, kinds: "sync syncdir rename create remove write truncate allocate punch"},
	{name: "I/O errors from now on", err: errDisk, stays: true},
	{name: "no writes from now on", err: errDisk, kinds: "write sync syncdir truncate allocate punch create rename remove mkdir", stays: true},
	{name: "full at a sync", err: errDiskFull, kinds: "sync syncdir"},
	{name: "no syncs from now on", err: errDisk, kinds: "sync syncdir", stays: true},
	{name: "full from now on", err: errDiskFull, kinds: spaceKinds, stays: true},
}

// TestDiskFaults lets the k-th call of the disk fail, in every way there is, for k = 0, 1, 2, …: nothing panics, hangs or
// gives a wrong row; what failed works when it is tried again, unless a sync has failed, after which nothing is written;
// and the next process finds all that was acknowledged.
//
// DORMOUSE_CRASH=all tries every k, else some are drawn. DORMOUSE_CRASH_SEED repeats a run, DORMOUSE_CRASH_POINT="KIND" or "KIND K" a
// part of it.
func TestDiskFaults(t *testing.T) {
	seed, all := crashtest.Seed(t)
	deadline := time.Now().Add(6 * time.Second)
	if testing.Short() {
		deadline = time.Now().Add(2 * time.Second)
	}
	dirs := crashtest.NewDirs(t)
	kinds := 4 * len(diskFaults)
	var lengths [4]int
	only, point := -1, -1
	fmt.Sscan(os.Getenv("DORMOUSE_CRASH_POINT"), &only, &point)
	for i := range kinds {
		if only >= 0 && i != only {
			continue
		}
		k, fault := crashModes[i%4], diskFaults[i/4]
		until := deadline.Add(-time.Until(deadline) * time.Duration(kinds-1-i) / time.Duration(kinds-i))
		r := rand.New(rand.NewPCG(seed, uint64(100+i)))
		points, images, failures := 0, 0, 0
		last := lengths[i%4]
		if last == 0 {
			last, _ = crashLength(t, dirs, k, seed)
			lengths[i%4] = last
		}
		for n := 0; n < last && failures < crashFailures; n++ {
			at := n
			if point >= 0 {
				at, last = point, 0
			} else if !all {
				if n > 0 && time.Now().After(until) { // one of each at least
					break
				}
				at = r.IntN(last)
			}
			f := &faultRun{t: t, dirs: dirs, k: k, seed: seed, fault: fault, at: at}
			ended := false
			within(t, time.Minute, fmt.Sprintf("%v, %s at %d, seed %d", k, fault.name, at, seed), func() { ended = f.run() })
			points, images = points+1, images+f.images
			if f.failed {
				failures++
			} else if ended {
				last = min(last, at)
			}
		}
		t.Logf("kind %d, %v, %s: %d of %d calls failed, %d images", i, k, fault.name, points, last, images)
	}
}
