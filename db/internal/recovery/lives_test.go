package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
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
		if next, err = crashtest.Cut(d, r, dirs); err == nil && next.Went() {
			how = "volume lost"
		}
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

// TestWorkersBetweenCuts has goroutines at work on one store, each on a conversation of its own, and one that keeps house beside
// them, when the process is killed or the power is cut; the next process goes on with what is left, and all of them are held to what
// any of them acknowledged.
//
// DORMOUSE_CRASH=all goes on for an hour; DORMOUSE_CRASH_SEED begins elsewhere. How goroutines take turns is not repeated.
func TestWorkersBetweenCuts(t *testing.T) {
	crashRuns(t, func(seed uint64) { workersBetweenCuts(t, seed) })
}

func workersBetweenCuts(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 4321))
	k := crashMode{power: r.IntN(3) > 0}
	dirs := crashtest.NewDirs(t)
	defer os.RemoveAll(dirs.Top)
	w := &crashRun{d: crashtest.NewDisk(dirs.Next()), k: k, sparse: true}
	defer func() { w.kill() }()
	workers := make([]*crashWorker, len(crashChats()))
	for c := range workers {
		workers[c] = &crashWorker{chat: c, j: newCrashJournal(k)}
	}
	failed := func(life int, err error) {
		var b strings.Builder
		for _, x := range workers {
			fmt.Fprintf(&b, "\n\t%s", strings.Join(x.j.log, "\n\t"))
		}
		t.Errorf("%v seed %d, life %d: %v%s", k, seed, life, err, b.String())
	}
	storetest.OK(t, w.open())
	for life := range 2 + r.IntN(2) {
		_, before := w.d.Ops()
		w.d.CrashAt(before + 20 + r.IntN(250))
		var err error
		within(t, time.Minute, fmt.Sprint("seed ", seed), func() { err = work(w, workers, r) })
		if err != nil && !w.d.Crashed() {
			failed(life, err)
			return
		}
		w.d.Crash()
		w.kill()
		var how string
		if w.d, how, err = nextDisk(w.d, r, dirs, 2); err != nil {
			t.Fatal(err)
		}
		all := newCrashJournal(k)
		all.hollow, all.cut = true, how != ""
		for _, x := range workers {
			x.ends(all, fmt.Sprintf("--- life %d ends %s", life, how))
		}
		within(t, time.Minute, fmt.Sprint("opening, seed ", seed), func() { err = all.compare(w, all.cut && !k.power) })
		if err != nil {
			failed(life, err)
			return
		}
		for _, x := range workers {
			n, _, _ := w.model(x.chat).Probe(t.Context(), crashChats()[x.chat].p, db.MatchOptions{})
			x.have = min(x.have, n)
		}
	}
}

// work has most of the workers, and one that keeps house, do something until they are done or the disk is gone.
func work(w *crashRun, workers []*crashWorker, r *rand.Rand) error {
	errs := make([]error, len(workers)+1)
	var wg sync.WaitGroup
	for i, x := range workers {
		own := rand.New(rand.NewPCG(r.Uint64(), uint64(i)))
		if r.IntN(3) > 0 {
			wg.Go(func() { errs[i] = x.work(w, own) })
		}
	}
	own := rand.New(rand.NewPCG(r.Uint64(), 99))
	wg.Go(func() { errs[len(workers)] = keepHouse(w, own) })
	wg.Wait()
	return errors.Join(errs...)
}

// crashWorker is a goroutine's work on one chat, through all lives.
type crashWorker struct {
	chat int
	have int           // tokens that are acknowledged
	j    *crashJournal // of deletions and the operation under way
}

func (x *crashWorker) work(w *crashRun, r *rand.Rand) error {
	kinds := []string{"put", "put", "put", "extend", "extend", "delete", "sync", "restore"}
	all := len(crashChats()[x.chat].p.Tokens)
	for range 60 {
		o := crashOp{kind: kinds[r.IntN(len(kinds))], chat: x.chat, n: crashSystem + 10 + r.IntN(all-crashSystem-9)}
		x.j.flight = &o
		var err error
		switch o.kind {
		case "put", "extend":
			x.j.mayReturn(o)
			if err = w.do(o); err == nil {
				x.have = max(x.have, o.n)
			}
		case "restore":
			err = x.restore(w)
		default:
			err = w.do(o)
		}
		if w.d.Crashed() {
			return nil
		}
		x.j.log = append(x.j.log, fmt.Sprint(o, " -> ", err))
		switch {
		case errors.Is(err, db.ErrSuspended), o.kind == "extend" && errors.Is(err, db.ErrNotStored): // what it continues is gone
			continue
		case err != nil && !w.expected(o, err):
			return fmt.Errorf("%v: %w", o, err)
		}
		x.lose()
		x.j.done(w, o, err)
		x.j.flight = nil
	}
	return nil
}

// restore compares what is stored now.
func (x *crashWorker) restore(w *crashRun) error {
	n, err := crashChats()[x.chat].restore(w.model(x.chat))
	if err != nil {
		return err
	}
	if least := x.least(); n < least {
		return fmt.Errorf("%d tokens are found, at least %d were acknowledged", n, least)
	}
	if at, ok := x.j.gone[x.chat]; ok && n > max(at, crashSystem) {
		return fmt.Errorf("%d tokens are found, all behind %d were deleted", n, at)
	}
	return nil
}

// least is what must be found. Behind what a deletion took of a chat that is stored as states there may be none.
func (x *crashWorker) least() int {
	if crashChats()[x.chat].d.Name == "opaque" {
		return 0
	}
	j := newCrashJournal(x.j.k)
	j.have[x.chat] = x.have
	return j.least(x.chat, false)
}

// lose takes off what the operation under way may have taken.
func (x *crashWorker) lose() {
	if x.j.flight == nil {
		return
	}
	if from, takes := x.j.flight.takes(x.chat, false); takes {
		x.have = min(x.have, from)
	}
}

// ends tells all what this one's chat must look like.
func (x *crashWorker) ends(all *crashJournal, how string) {
	x.lose()
	x.j.flight = nil
	x.j.log = append(x.j.log, how)
	all.have[x.chat] = x.least()
	maps.Copy(all.gone, x.j.gone)
	maps.Copy(all.wiped, x.j.wiped)
}

// keepHouse does what the store does by itself, and what an app does with the whole of it.
func keepHouse(w *crashRun, r *rand.Rand) error {
	kinds := []string{
		"checkpoint", "checkpoint", "compact", "move", "move", "trim", "rebuild", "log sync", "suspend", "sync", "verify", "verify", "nap", "nap",
	}
	for range 25 {
		o := crashOp{kind: kinds[r.IntN(len(kinds))], n: r.IntN(100)}
		var err error
		switch o.kind {
		case "nap":
			time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
		case "rebuild":
			storetest.RebuildIndex(w.s)
		case "verify":
			var rep admin.Report
			if rep, err = admin.VerifyStore(context.Background(), w.s, admin.VerifyOptions{}); err == nil && len(crashtest.Unexpected(w.d, rep.Damage)) > 0 {
				err = fmt.Errorf("damage: %v", rep.Damage)
			}
		default:
			err = w.do(o)
		}
		if w.d.Crashed() {
			return nil
		}
		w.d.Settle()
		if err != nil && !w.expected(o, err) {
			return fmt.Errorf("%v: %w", o, err)
		}
	}
	return nil
}
