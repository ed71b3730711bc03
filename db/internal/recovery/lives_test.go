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

// TestLives is of processes that are killed, or stop when the disk fails, one after the other in the same boot, before the
// power is cut: what the last one acknowledged rests on what the others had not synced. The index may be lost in between.
//
// DORMOUSE_CRASH=all goes on for an hour; DORMOUSE_CRASH_SEED begins elsewhere.
func TestLives(t *testing.T) {
	dirs := crashtest.NewDirs(t)
	crashRuns(t, func(seed uint64) { crashLives(t, dirs, seed) })
}

func crashLives(t *testing.T, dirs *crashtest.Dirs, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 11))
	k := crashModes[r.IntN(4)]
	d := crashtest.NewDisk(dirs.Next())
	defer func() { os.RemoveAll(d.Dir()) }()
	var what []string
	var j *crashJournal
	lives := 2 + r.IntN(2)
	for life := range lives {
		if life > 0 {
			next, err := d.Kill(dirs.Next())
			storetest.OK(t, err)
			os.RemoveAll(d.Dir())
			if d = next; r.IntN(4) == 0 {
				what = append(what, "the index is lost")
				d.Remove(filepath.Join(d.Dir(), storetest.IndexFile))
				d.SyncDir(d.Dir())
			}
		}
		j = newCrashJournal(k)
		j.hollow = true
		w := &crashRun{d: d, k: k, j: j}
		_, before := d.Ops()
		ops := append([]crashOp{{kind: "open"}, {kind: "put", n: 60}}, k.script(seed+uint64(life)*1000)...)
		ops = ops[:len(ops)-1]
		at := before + r.IntN(300)
		failing := ""
		if life < lives-1 {
			failing = []string{"", "", "", " sync syncdir ", " write rename remove truncate create ", " read open map stat "}[r.IntN(6)]
		}
		if failing == "" {
			d.CrashAt(at)
		} else {
			d.Before(func(op crashfs.Op) error {
				if op.Change >= at && strings.Contains(failing, " "+op.Kind+" ") {
					return errDisk
				}
				return nil
			})
		}
		what = append(what, fmt.Sprintf("life %d until %d, fails:%s", life, at-before, failing))
		within(t, time.Minute, fmt.Sprint(what), func() {
			for _, o := range ops {
				if err := w.step(o); err != nil {
					if failing == "" {
						t.Errorf("%v seed %d: %v: %v\n\t%s", k, seed, what, err, crashTail(j.log))
					}
					break
				}
				if d.Crashed() {
					break
				}
			}
			d.Before(nil)
			if life == lives-1 {
				d.Crash()
			}
			w.kill()
		})
		if t.Failed() {
			return
		}
	}
	if len(j.log) < 2 || len(j.log) == 2 && j.flight != nil {
		return // the last one acknowledged nothing
	}
	j.cut = true
	for i := range 4 {
		image, err := crashtest.CutAndReboot(d, r, dirs)
		storetest.OK(t, err)
		lost := []string{"", "", storetest.IndexFile}[r.IntN(3)]
		if lost != "" {
			image.Remove(filepath.Join(image.Dir(), lost))
			image.SyncDir(image.Dir())
		}
		x := &crashRun{d: image, k: k}
		within(t, time.Minute, "opening", func() { err = j.compare(x, !k.power) })
		x.kill()
		os.RemoveAll(image.Dir())
		if err != nil {
			t.Errorf("%v seed %d: %v, image %d, without %q: %v\n\t%s", k, seed, what, i, lost, err, crashTail(j.log))
			return
		}
	}
}
