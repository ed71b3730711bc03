package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/space"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// crashRun is a store at work on a disk.
type crashRun struct {
	d      *crashfs.Disk
	k      crashMode
	j      *crashJournal
	s      *db.Store
	models map[kv.Fingerprint]*db.Model
	held   []crashHeld
	sparse bool // nothing is measured after an operation: the disk may fail meanwhile
}

type crashHeld struct {
	x    *db.Match
	chat int
}

func (w *crashRun) open() error {
	s, err := storetest.TryOpen(w.d, w.d.Dir(), w.k.options())
	if err != nil {
		return err
	}
	w.s = s
	return w.registered()
}

// registered gets a handle on every model, or gives the store up.
func (w *crashRun) registered() (err error) {
	defer func() {
		if err != nil {
			w.kill()
		}
	}()
	w.models = map[kv.Fingerprint]*db.Model{}
	for _, x := range crashChats() {
		fp := x.d.Fingerprint()
		if w.models[fp] != nil {
			continue
		}
		m, err := w.s.Register(context.Background(), x.d)
		if err != nil {
			return err
		}
		w.models[fp] = m.Model
	}
	return nil
}

func (w *crashRun) model(chat int) *db.Model { return w.models[crashChats()[chat].d.Fingerprint()] }

// crashLength is how many calls of the disk, and how many changes, a script makes that nothing disturbs.
func crashLength(t *testing.T, dirs *crashtest.Dirs, k crashMode, seed uint64) (calls, changes int) {
	dir := dirs.Next()
	defer os.RemoveAll(dir)
	w := &crashRun{d: crashtest.NewDisk(dir), k: k, sparse: true, j: newCrashJournal(k)}
	defer w.kill()
	for _, o := range append([]crashOp{{kind: "open"}}, k.script(seed)...) {
		if err := w.do(o); err != nil && !w.expected(o, err) {
			t.Fatalf("%v seed %d: %v: %v", k, seed, o, err)
		}
	}
	return w.d.Ops()
}

// kill ends the process, as far as the store can tell.
func (w *crashRun) kill() {
	s := w.s
	if s == nil {
		return
	}
	var open []*db.Match
	for _, h := range w.held {
		open = append(open, h.x)
	}
	w.s, w.held = nil, nil
	storetest.Crash(s, open...)
}

// do is one operation.
func (w *crashRun) do(o crashOp) error {
	if o.kind == "open" {
		return w.open()
	}
	x, m := crashChats()[o.chat], w.model(o.chat)
	p := x.p.Prefix(o.n)
	opaque := x.d.Name == "opaque"
	switch o.kind {
	case "put":
		_, err := m.Put(context.Background(), p, x.Rows(0, o.n), db.PutOptions{KeepStates: o.keep})
		return err
	case "extend":
		match, err := m.Match(context.Background(), p, db.MatchOptions{})
		if err != nil {
			return err
		}
		defer match.Close()
		from := match.Tokens()
		if len(x.d.Groups) > 1 { // of a window the runtime gives what it has: all that a restore gives it
			from = max(0, from-40)
		}
		if opaque {
			from = 0
		}
		_, err = match.Extend(context.Background(), p, x.Rows(from, o.n), db.PutOptions{})
		return err
	case "restore":
		_, err := x.restore(m)
		return err
	case "hold":
		match, err := m.Match(context.Background(), p, db.MatchOptions{})
		if err == nil {
			w.held = append(w.held, crashHeld{match, o.chat})
		}
		return err
	case "release":
		return w.release()
	case "ref":
		n, _, err := m.Probe(context.Background(), p, db.MatchOptions{})
		if err == nil && n < kv.OpeningTokens {
			return nil
		}
		if err == nil {
			err = m.SetRef(context.Background(), o.name, x.p.Prefix(n), db.RefOptions{Pinned: true, Meta: fmt.Append(nil, o.chat)})
		}
		return err
	case "unref":
		return w.s.DeleteRef(context.Background(), o.name)
	case "note":
		if o.n == 0 {
			return m.SetNote(context.Background(), o.name, nil)
		}
		return m.SetNote(context.Background(), o.name, fmt.Appendf(nil, "%06d%0*d", len(w.j.log), o.n*300, 0))
	case "delete":
		_, err := m.Delete(context.Background(), p)
		return err
	case "scope":
		_, err := w.s.DeleteScope(context.Background(), o.name)
		return err
	case "sync":
		return w.s.Sync(context.Background())
	case "checkpoint":
		return w.s.Checkpoint(context.Background())
	case "compact":
		_, err := w.s.Compact(context.Background(), db.CompactOptions{All: true})
		return err
	case "move":
		return w.move(o.n)
	case "log sync":
		return storetest.Engine(w.s).Ledger.WAL.Sync(storetest.Engine(w.s).Ledger.WAL.LastLSN())
	case "trim":
		return second(w.s.Pressure(context.Background(), db.Moderate))
	case "shrink":
		_, err := w.s.Shrink(context.Background(), storetest.Engine(w.s).Budget.Measure()-(16<<10))
		return err
	case "suspend":
		if err := w.s.Suspend(context.Background()); err != nil {
			return err
		}
		return w.s.Resume(context.Background())
	case "reopen":
		if err := w.close(); err != nil {
			return err
		}
		return w.open()
	case "retire":
		err := w.s.Retire(context.Background(), m.Fingerprint())
		if rerr := w.registered(); err == nil { // it may be retired even so
			err = rerr
		}
		return err
	case "close":
		return w.close()
	}
	panic(o.kind)
}

// move moves what lives in all segments, or where seed is odd in some, and makes no checkpoint.
func (w *crashRun) move(seed int) error {
	if err := storetest.Engine(w.s).Segments.SealAll(); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(uint64(seed), 3))
	var out space.Compacted
	return storetest.Engine(w.s).Space.Inside().Rewrite(context.Background(), func(segments.Info, int64) bool { return seed%2 == 0 || r.IntN(2) == 0 }, &out)
}

func (w *crashRun) release() error {
	var first error
	for _, h := range w.held {
		if _, err := crashChats()[h.chat].check(h.x); err != nil && (first == nil || errors.Is(err, errWrongRow)) {
			first = err
		}
		h.x.Close()
	}
	w.held = nil
	return first
}

func (w *crashRun) close() error {
	if err := w.release(); err != nil {
		return err
	}
	err := w.s.Close()
	w.s = nil
	return err
}

// expected are the errors that an operation ends in on a sound disk.
func (w *crashRun) expected(o crashOp, err error) bool {
	var pending *db.PendingError
	switch {
	case o.kind == "unref" && errors.Is(err, db.ErrNotFound), o.kind == "sync" && errors.As(err, &pending):
		return true
	case w.k.small && (errors.Is(err, db.ErrNoSpace) || errors.Is(err, db.ErrNotStored)): // evicting goes on beside a put
		return true
	case errors.Is(err, db.ErrRetired) && o.kind == "release": // a match of a model that is gone
		return true
	}
	return false
}

// step does one operation and keeps the journal. It returns the error of one that failed although it should not.
func (w *crashRun) step(o crashOp) error {
	j := w.j
	j.flight = &o
	j.log = append(j.log, o.String())
	var before map[kv.Key]db.Block
	takes := o.kind == "delete" || o.kind == "scope" || o.kind == "retire"
	if takes && !w.sparse {
		before = crashBlocks(w.s)
	}
	if o.kind == "put" || o.kind == "extend" {
		j.put(w, o)
	}
	err := w.do(o)
	if w.d.Crashed() {
		return nil
	}
	w.d.Settle()
	if errors.Is(err, errWrongRow) || err != nil && !w.expected(o, err) {
		return fmt.Errorf("%v: %w", o, err)
	}
	j.log[len(j.log)-1] += fmt.Sprint(" -> ", err)
	if takes && err == nil && before != nil {
		after := crashBlocks(w.s)
		for k, b := range before {
			if _, stays := after[k]; !stays && w.deleted(o, b, before) {
				j.dead[k] = o.String()
			}
		}
	}
	j.done(w, o, err)
	j.flight = nil
	return nil
}
