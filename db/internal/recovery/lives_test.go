package recovery_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// Processes one after the other on one disk, and a power cut: what the last one acknowledged rests on what the others had not synced. The
// index may be lost in between.
//
// DORMOUSE_CRASH=all goes on for an hour; DORMOUSE_CRASH_SEED begins elsewhere.

// TestLives is of processes that are killed, or stop when the disk fails, in the same boot.
func TestLives(t *testing.T) {
	dirs := crashtest.NewDirs(t)
	crashRuns(t, func(seed uint64) {
		r := rand.New(rand.NewPCG(seed, 11))
		k := crashModes[r.IntN(4)]
		x := crashLives{seed: seed, r: r, k: k, lives: 2 + r.IntN(2)}
		x.script = func(life int) []crashOp {
			ops := k.script(seed + uint64(life)*1000)
			return ops[:len(ops)-1]
		}
		x.failing = []string{"", "", "", " sync syncdir ", " write rename remove truncate create ", " read open map stat "}
		x.run(t, dirs)
	})
}

// TestMovesBetweenCuts is of processes that put, move and destroy and make hardly a checkpoint, with a kill or a power cut after each:
// what the log gave up, and what stands in for what a cut took, is moved and destroyed in its turn.
func TestMovesBetweenCuts(t *testing.T) {
	dirs := crashtest.NewDirs(t)
	crashRuns(t, func(seed uint64) {
		r := rand.New(rand.NewPCG(seed, 77))
		x := crashLives{seed: seed, r: r, k: crashMode{power: r.IntN(3) > 0}, lives: 1 + r.IntN(3), failing: []string{""}, cuts: 2}
		x.script = func(int) []crashOp { return movesScript(r) }
		x.run(t, dirs)
	})
}

type crashLives struct {
	seed    uint64
	r       *rand.Rand
	k       crashMode
	lives   int
	script  func(life int) []crashOp
	failing []string // one of them is the calls that fail in a life, from some moment on; "": it is killed then, as the last one is
	cuts    int      // of three lives so many end with a power cut, but for the last one
}

func (x *crashLives) run(t *testing.T, dirs *crashtest.Dirs) {
	d := crashtest.NewDisk(dirs.Next())
	defer func() { os.RemoveAll(d.Dir()) }()
	var what []string
	var j *crashJournal
	for life := range x.lives {
		j = newCrashJournal(x.k)
		j.hollow = true
		what = append(what, fmt.Sprintf("life %d %s", life, x.live(t, d, j, life == x.lives-1, x.script(life))))
		if t.Failed() {
			t.Log(what)
			return
		}
		if life < x.lives-1 {
			next, how, err := nextDisk(d, x.r, dirs, x.cuts)
			storetest.OK(t, err)
			os.RemoveAll(d.Dir())
			d = next
			what = append(what, how, crashTail(j.log))
		}
	}
	if len(j.log) < 2 || len(j.log) == 2 && j.flight != nil {
		return // the last one acknowledged nothing: what it found need not be on the disk
	}
	j.cut = true
	for i := range 4 {
		image, how, err := nextDisk(d, x.r, dirs, always)
		storetest.OK(t, err)
		w := &crashRun{d: image, k: x.k}
		within(t, time.Minute, "opening", func() { err = j.compare(w, !x.k.power) })
		w.kill()
		os.RemoveAll(image.Dir())
		if err != nil {
			t.Errorf("%v seed %d, image %d, %s: %v\n%v\n\t%s", x.k, x.seed, i, how, err, what, crashTail(j.log))
			return
		}
	}
}

// live has one process work until it is killed, or stopped by the disk, and says how long that was.
func (x *crashLives) live(t *testing.T, d *crashfs.Disk, j *crashJournal, last bool, script []crashOp) (what string) {
	w := &crashRun{d: d, k: x.k, j: j}
	_, before := d.Ops()
	at, failing := before+x.r.IntN(300), x.failing[x.r.IntN(len(x.failing))]
	if failing == "" || last {
		failing = ""
		d.CrashAt(at)
	} else {
		d.Before(func(op crashfs.Op) error {
			if op.Change >= at && strings.Contains(failing, " "+op.Kind+" ") {
				return errDisk
			}
			return nil
		})
	}
	what = fmt.Sprintf("until %d, fails:%s", at-before, failing)
	within(t, time.Minute, what, func() {
		for _, o := range append([]crashOp{{kind: "open"}, {kind: "put", n: 60}}, script...) {
			err := w.step(o)
			if err != nil && failing == "" {
				t.Errorf("%v seed %d, %s: %v\n\t%s", x.k, x.seed, what, err, crashTail(j.log))
			}
			if err != nil || d.Crashed() {
				break
			}
		}
		d.Before(nil)
		d.Crash()
		w.kill()
	})
	return what
}

// always is how many of three lives end with a power cut.
const always = 3

// nextDisk is what a kill leaves, or, cuts times of three, a power cut, and how. The index may be lost besides.
func nextDisk(d *crashfs.Disk, r *rand.Rand, dirs *crashtest.Dirs, cuts int) (next *crashfs.Disk, how string, err error) {
	if r.IntN(3) >= cuts {
		next, err = d.Kill(dirs.Next())
	} else {
		how = "power cut"
		next, err = crashtest.CutAndReboot(d, r, dirs)
	}
	if err == nil && r.IntN(4) == 0 {
		how += ", index lost"
		next.Remove(filepath.Join(next.Dir(), storetest.IndexFile))
		err = next.SyncDir(next.Dir())
	}
	return next, how, err
}

// movesScript is what one process does, with two chats.
func movesScript(r *rand.Rand) (ops []crashOp) {
	kinds := []string{
		"put", "put", "put", "put", "put", "put", "put", "put", "extend", "extend", "move", "move", "move", "move", "sync", "sync",
		"log sync", "log sync", "hold", "hold", "release", "release", "delete", "delete", "restore", "restore", "checkpoint",
	}
	chats := []int{r.IntN(6), r.IntN(6)}
	for range 4 + r.IntN(14) {
		o := crashOp{kind: kinds[r.IntN(len(kinds))], chat: chats[r.IntN(2)]}
		all := len(crashChats()[o.chat].p.Tokens)
		o.n = crashSystem - 10 + r.IntN(all-crashSystem+11)
		if o.kind == "delete" {
			o.n = max(o.n, crashSystem+5)
		}
		ops = append(ops, o)
	}
	return ops
}
