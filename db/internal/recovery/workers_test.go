package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
)

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
			if rep, err = admin.VerifyStore(context.Background(), w.s, admin.VerifyOptions{}); err == nil && len(rep.Damage) > 0 {
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
