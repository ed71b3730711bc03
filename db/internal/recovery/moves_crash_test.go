package recovery_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
)

// TestMovesBetweenCuts is of processes that put, move and destroy and make hardly a checkpoint, with a kill or a power cut after each:
// what the log gave up, and what stands in for what a cut took, is moved and destroyed in its turn.
//
// DORMOUSE_CRASH=all goes on for an hour; DORMOUSE_CRASH_SEED begins elsewhere.
func TestMovesBetweenCuts(t *testing.T) {
	crashRuns(t, func(seed uint64) { movesBetweenCuts(t, seed) })
}

func movesBetweenCuts(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 77))
	k := crashMode{power: r.IntN(3) > 0}
	dirs := crashtest.NewDirs(t)
	defer os.RemoveAll(dirs.Top)
	d := crashtest.NewDisk(dirs.Next())
	var what []string
	var j *crashJournal
	for lives := 1 + r.IntN(3); lives > 0; lives-- {
		j = newCrashJournal(k)
		j.hollow = true
		w := &crashRun{d: d, k: k, j: j}
		if _, before := d.Ops(); r.IntN(3) > 0 {
			d.CrashAt(before + 1 + r.IntN(200))
		}
		for _, o := range append([]crashOp{{kind: "open"}, {kind: "put", n: 60}}, movesScript(r)...) {
			var err error
			within(t, time.Minute, fmt.Sprint(what, o), func() { err = w.step(o) })
			if err != nil && !d.Crashed() {
				t.Errorf("%v seed %d: %v\n%v\n\t%s", k, seed, err, what, crashTail(j.log))
				w.kill()
				return
			}
			if d.Crashed() {
				break
			}
		}
		d.Crash()
		w.kill()
		if lives == 1 {
			break
		}
		what = append(what, crashTail(j.log))
		next, err := d.Kill(dirs.Next())
		if r.IntN(3) > 0 {
			what = append(what, "power cut")
			next, err = crashtest.CutAndReboot(d, r, dirs)
		}
		if err != nil {
			t.Fatal(err)
		}
		d = next
	}
	if len(j.log) < 2 || len(j.log) == 2 && j.flight != nil {
		return // the last one acknowledged nothing: what it found need not be on the disk
	}
	j.cut = true
	for i := range 4 {
		image, err := crashtest.CutAndReboot(d, r, dirs)
		storetest.OK(t, err)
		lost := []string{"", "", "", storetest.IndexFile}[r.IntN(4)]
		if lost != "" {
			image.Remove(filepath.Join(image.Dir(), lost))
			image.SyncDir(image.Dir())
		}
		x := &crashRun{d: image, k: k}
		within(t, time.Minute, "opening", func() { err = j.compare(x, !k.power) })
		x.kill()
		os.RemoveAll(image.Dir())
		if err != nil {
			t.Errorf("%v seed %d, image %d, without %q: %v\n%v\n\t%s", k, seed, i, lost, err, what, crashTail(j.log))
			return
		}
	}
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
