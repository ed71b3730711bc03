package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// TestCrashPoints cuts the power, or kills the process, before the k-th change of the disk, for k = 0, 1, 2, … until a run
// ends without a crash, opens the store from several states in which that could leave the disk, and finds everything that
// was promised; also after another crash while it was opened.
//
// DORMOUSE_CRASH=all tries every k, else some are drawn. DORMOUSE_CRASH_SEED repeats a run, and with it
// DORMOUSE_CRASH_POINT="2 117" one crash of the third mode.
func TestCrashPoints(t *testing.T) {
	seed, all := crashtest.Seed(t)
	deadline := time.Now().Add(8 * time.Second)
	if testing.Short() {
		deadline = time.Now().Add(3 * time.Second)
	}
	dirs := crashtest.NewDirs(t)
	only, point := -1, 0
	fmt.Sscan(os.Getenv("DORMOUSE_CRASH_POINT"), &only, &point)
	for i, k := range crashModes {
		if only >= 0 && i != only {
			continue
		}
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		points, images := 0, 0
		_, last := crashLength(t, dirs, k, seed)
		last += 20 // runs differ a little: nothing is done at the same moment twice
		until := deadline.Add(-time.Until(deadline) * time.Duration(len(crashModes)-1-i) / time.Duration(len(crashModes)-i))
		failures := 0
		for n := 0; n < last && failures < crashFailures; n++ {
			at := n
			if only >= 0 {
				at, last = point, 0
			} else if !all {
				if time.Now().After(until) {
					break
				}
				at = r.IntN(last)
			}
			p := &crashPoint{t: t, dirs: dirs, k: k, seed: seed, at: at}
			ended := p.run()
			points, images = points+1, images+p.images
			if p.failed {
				failures++
			} else if ended {
				last = min(last, p.changes)
			}
		}
		t.Logf("mode %d, %v: %d of %d crash points, %d images", i, k, points, last, images)
	}
}

// crashFailures is how many failures of one kind of run are enough.
const crashFailures = 6

// crashPoint is one crash.
type crashPoint struct {
	t       *testing.T
	dirs    *crashtest.Dirs
	k       crashMode
	seed    uint64
	at      int
	images  int
	changes int
	failed  bool
}

func (p *crashPoint) errorf(format string, args ...any) {
	p.failed = true
	p.t.Errorf(format, args...)
}

// run works until the crash, and compares what it leaves. It reports whether the script ended before.
func (p *crashPoint) run() (ended bool) {
	t := p.t
	dir := p.dirs.Next()
	defer os.RemoveAll(dir)
	d := crashtest.NewDisk(dir)
	d.CrashAt(p.at)
	j := newCrashJournal(p.k)
	w := &crashRun{d: d, k: p.k, j: j}
	within(t, time.Minute, fmt.Sprintf("%v seed %d crash at %d", p.k, p.seed, p.at), func() {
		for _, o := range append([]crashOp{{kind: "open"}}, p.k.script(p.seed)...) {
			if err := w.step(o); err != nil {
				p.errorf("%v seed %d crash at %d: %v\n\t%s", p.k, p.seed, p.at, err, crashTail(j.log))
				break
			}
			if d.Crashed() {
				break
			}
		}
		d.Crash()
		w.kill()
	})
	_, p.changes = d.Ops()
	if p.failed {
		return false
	}
	ended = p.changes < p.at
	for i := range 4 {
		p.image(d, j, i)
		if p.failed {
			t.Logf("%v DORMOUSE_CRASH_SEED=%d crash at %d, image %d, under way %v\n\t%s", p.k, p.seed, p.at, i, j.flight, crashTail(j.log))
			return ended
		}
	}
	return ended
}

// image compares one state in which the crash can leave the disk.
func (p *crashPoint) image(d *crashfs.Disk, j *crashJournal, i int) {
	t := p.t
	rnd := rand.New(rand.NewPCG(p.seed, uint64(p.at)<<8|uint64(i)))
	power := i > 0
	// cut makes the image that a disk leaves.
	cut := func(d *crashfs.Disk, power bool) *crashfs.Disk {
		p.images++
		if power {
			return storetest.Must(crashtest.Cut(d, rnd, p.dirs))(t)
		}
		return storetest.Must(d.Kill(p.dirs.Next()))(t)
	}
	image := cut(d, power)
	defer func() { os.RemoveAll(image.Dir()) }()
	how := "kill"
	if power {
		how = "power cut"
	}
	if rnd.IntN(3) == 0 { // the store is opened, and that ends in a crash, too
		w := &crashRun{d: image, k: p.k, j: newCrashJournal(p.k)}
		_, before := image.Ops()
		image.CrashAt(before + rnd.IntN(60))
		within(t, time.Minute, "an open that crashes", func() {
			if w.open() == nil {
				w.do(crashOp{kind: "restore"})
				w.do(crashOp{kind: "checkpoint"})
			}
			image.Crash()
			w.kill()
		})
		again := rnd.IntN(2) == 0
		power = power || again
		next := cut(image, again)
		os.RemoveAll(image.Dir())
		image = next
		how += fmt.Sprintf(", then another (power cut: %t)", again)
	}
	if lost := []string{"", "", "", storetest.IndexFile, storetest.BloomFile}[rnd.IntN(5)]; lost != "" {
		image.Remove(filepath.Join(image.Dir(), lost))
		image.SyncDir(image.Dir())
		how += ", and without " + lost
	}
	w := &crashRun{d: image, k: p.k}
	defer w.kill()
	within(t, time.Minute, "opening after "+how, func() {
		j.cut = power
		if err := j.compare(w, power && !p.k.power); err != nil {
			p.errorf("after %s: %v", how, err)
			return
		}
		if rnd.IntN(3) == 0 {
			p.goOn(w, how)
		}
	})
}

// goOn works on with a store that came back, as with any other.
func (p *crashPoint) goOn(w *crashRun, how string) {
	w.j = newCrashJournal(p.k)
	w.j.hollow, w.j.cut = !p.k.power, true // what the cut left is still there
	for c, x := range crashChats() {
		n := len(x.p.Tokens)
		for _, o := range []crashOp{{kind: "put", chat: c, n: n - 20}, {kind: "extend", chat: c, n: n}, {kind: "restore", chat: c}} {
			if err := w.step(o); err != nil {
				p.errorf("after %s, %v: %v", how, o, err)
				return
			}
		}
	}
	for _, kind := range []string{"sync", "compact", "reopen"} {
		if err := w.step(crashOp{kind: kind}); err != nil {
			p.errorf("after %s, %s: %v", how, kind, err)
			return
		}
	}
	rep, err := admin.VerifyStore(context.Background(), w.s, admin.VerifyOptions{})
	if err != nil || len(rep.Damage) > 0 {
		p.errorf("after %s, and more work: verify: %v, %v", how, rep.Damage, err)
	}
	have := append([]int(nil), w.j.have...)
	if err := w.step(crashOp{kind: "close"}); err != nil {
		p.errorf("after %s: %v", how, err)
		return
	}
	if err := w.j.compare(w, false); err != nil {
		p.errorf("after %s, and more work: %v", how, err)
	}
	for c, x := range crashChats() {
		if n := len(x.p.Tokens); have[c] != n && !p.k.small {
			p.errorf("after %s, and more work: chat %d holds %d of %d tokens", how, c, have[c], n)
		}
	}
}

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
