package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// ack is what a run of the log was promised, up to its first error.
type ack struct {
	appended map[uint64]wrote
	last     uint64 // returned by Append
	durable  uint64 // returned by Sync or Rotate
	file     uint64 // returned by Rotate, or begun
	oldest   uint64
	inPlace  bool // a rotation went on in the old file
	log      *Log
	err      error
}

// runs meet every operation.
var runs = map[string]func(a *ack, d *disk) error{"with room": (*ack).withRoom, "on a full disk": (*ack).onAFullDisk}

func script(d *disk, run func(a *ack, d *disk) error) *ack {
	a := &ack{appended: map[uint64]wrote{}, oldest: 1}
	a.err = run(a, d)
	return a
}

// put appends a frame. What is refused may be on disk all the same, if undoing it is refused too.
func (a *ack) put(n int, appendFrame func(kind uint8, payload []byte) (uint64, error)) error {
	w := wrote{7, strings.Repeat(fmt.Sprint(a.last+1), n)}
	a.appended[a.last+1] = w
	lsn, err := appendFrame(w.kind, []byte(w.payload))
	if err == nil {
		a.last = lsn
	}
	return err
}

func (a *ack) sync() error {
	err := a.log.Sync(a.last)
	if err == nil {
		a.durable = a.last
	}
	return err
}

// rotate goes on in file id, or in the one before, where the disk is full.
func (a *ack) rotate(id uint64) error {
	got, lsn, err := a.log.Rotate(text(fmt.Sprint("state ", id)))
	if err != nil {
		return err
	}
	a.file, a.durable, a.inPlace = got, lsn, a.inPlace || got < id
	if lsn != a.last {
		return fmt.Errorf("rotated at LSN %d, not %d", lsn, a.last)
	}
	return nil
}

func (a *ack) remove(below uint64) error {
	a.oldest = below
	return a.log.Remove(below)
}

func (a *ack) withRoom(d *disk) (err error) {
	if a.log, err = Create(d.o, 1, 1, []byte("state 1")); err != nil {
		return err
	}
	a.file = 1
	for id := uint64(2); id <= 4; id++ {
		for n := range 4 {
			if err := a.put(n*700, a.log.Append); err != nil {
				return err
			}
			if n == 1 {
				if err := a.sync(); err != nil {
					return err
				}
			}
		}
		if err := a.rotate(id); err != nil {
			return err
		}
		if err := a.put(10, a.log.Append); err != nil {
			return err
		}
		if id >= 3 {
			if err := a.remove(id); err != nil {
				return err
			}
		}
	}
	return a.log.Close()
}

// onAFullDisk goes on in the file there is, makes the next one of an old one, and begins with the first frame.
func (a *ack) onAFullDisk(d *disk) (err error) {
	if a.log, err = CreateLater(d.o, 1, 1, func() []byte { return []byte("state 1") }); err != nil {
		return err
	}
	reserved := func() error { return a.put(20, a.log.AppendReserved) }
	for _, step := range []func() error{
		func() error { return a.put(700, a.log.Append) },
		func() error { a.file = 1; return a.rotate(2) },
		reserved,
		func() error { d.fill(0); return a.rotate(3) }, // in the spare, and there is no other
		reserved,
		func() error { return a.rotate(4) },
		func() error { return a.remove(1) }, // nothing may go
		reserved,
		func() error { return a.remove(a.file) },
		reserved,
		func() error { return a.rotate(a.file + 1) },
		reserved,
		func() error { return a.remove(a.file) },
		a.sync,
		reserved,
		func() error { d.SetBytes(0); return a.put(3000, a.log.Append) },
		func() error { return a.rotate(a.file + 1) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return a.log.Close()
}

// holds checks a crashed disk against what was acknowledged.
func (a *ack) holds(d *disk, least uint64) error {
	k, err := replayAll(d.o)
	if err == nil {
		err = k.whole(a.appended)
	}
	if err != nil {
		return err
	}
	if k.rec.LastLSN < least || k.rec.LastFile < a.file {
		return fmt.Errorf("LSN %d in file %d came back; acknowledged %d in file %d", k.rec.LastLSN, k.rec.LastFile, least, a.file)
	}
	if len(k.rec.Files) == 0 {
		return nil
	}
	for _, f := range k.rec.Files {
		if s := k.snapshots[f.FirstLSN-1]; s != fmt.Sprint("state ", f.ID) && !a.inPlace {
			return fmt.Errorf("file %d starts with snapshot %q", f.ID, s)
		}
	}
	if k.rec.Files[0].ID > max(a.oldest, 1) {
		return fmt.Errorf("oldest file %d, only those below %d were removed", k.rec.Files[0].ID, a.oldest)
	}
	d.SetBytes(0) // the log can go on from there
	log, err := Create(d.o, k.rec.LastFile+1, k.rec.LastLSN+1, nil)
	if err != nil {
		return err
	}
	return log.Close()
}

// crashed checks what a kill leaves, and what so many power cuts do.
func (a *ack) crashed(t *testing.T, what string, d *disk, cuts int, rnd *rand.Rand) {
	t.Helper()
	if err := a.holds(d.kill(), a.last); err != nil {
		t.Fatalf("%s, then a kill: %v", what, err)
	}
	for range cuts {
		if err := a.holds(d.cut(rnd), a.durable); err != nil {
			t.Fatalf("%s, then a power cut: %v", what, err)
		}
	}
}

// Stopped before any operation, by a kill or a power cut, the log holds what it had acknowledged by then.
func TestCrashBeforeEveryOperation(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, run := range runs {
		for i := 0; ; i++ {
			d := newDisk(t)
			d.CrashAt(i)
			a := script(d, run)
			if !d.Crashed() {
				if a.err != nil || i < 50 || a.inPlace != (name == "on a full disk") {
					t.Fatalf("%s: clean run of %d operations, in place %t: %v", name, i, a.inPlace, a.err)
				}
				break
			}
			a.crashed(t, fmt.Sprintf("%s: stopped before change %d", name, i), d, 6, rnd)
		}
	}
}

// Whatever single operation fails, or does only a part, or all and says that it failed: the log refuses cleanly or is poisoned for
// good, and what it had acknowledged is there.
func TestEveryOperationFails(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for name, run := range runs {
		for _, injected := range []error{
			errInjected, &crashfs.Late{Err: errInjected}, vfs.ErrNoSpace, &crashfs.Short{Bytes: 5, Err: errInjected}, &crashfs.Short{Bytes: 70, Err: errInjected},
		} {
			for i := 0; failsAt(t, name, run, i, injected, rnd); i++ {
			}
		}
	}
}

// failsAt fails operation i of a run, and reports whether there was one.
func failsAt(t *testing.T, name string, run func(*ack, *disk) error, i int, injected error, rnd *rand.Rand) bool {
	d := newDisk(t)
	failed := ""
	d.Before(func(op crashfs.Op) error {
		if op.N == i {
			failed = op.Kind
			return injected
		}
		return nil
	})
	a := script(d, run)
	d.Before(nil)
	if failed == "" {
		ok(t, a.err)
		return false
	}
	what := fmt.Sprintf("%s: operation %d (%s) fails with %q", name, i, failed, injected)
	if a.err != nil && !errors.Is(a.err, injected) && !(name == "on a full disk" && errors.Is(a.err, vfs.ErrNoSpace)) {
		t.Fatalf("%s: returned %v", what, a.err)
	}
	if a.log != nil && a.err != nil && !errors.Is(a.err, ErrClosed) {
		d.SetBytes(0)
		goesOn(t, d, a, what, failed)
	}
	a.crashed(t, what, d, 4, rnd)
	return true
}

// goesOn checks that a log whose last call failed is poisoned, or works as before.
func goesOn(t *testing.T, d *disk, a *ack, what, failed string) {
	t.Helper()
	a.log.mu.Lock()
	closed := a.log.closed
	a.log.mu.Unlock()
	if closed {
		return
	}
	if poison := a.log.Err(); poison != nil {
		_, err1 := a.log.Append(2, nil)
		_, _, err2 := a.log.Rotate(text("no"))
		for _, err := range []error{err1, err2, a.log.Sync(a.log.LastLSN()), a.log.Remove(9)} {
			if err != poison && err != nil || !errors.Is(poison, ErrPoisoned) {
				t.Fatalf("%s: poisoned with %v, but then: %v", what, poison, err)
			}
		}
		if err1 == nil || err2 == nil {
			t.Fatalf("%s: poisoned, but goes on", what)
		}
		return
	}
	if failed == "sync" || failed == "syncdir" {
		t.Fatalf("%s: not poisoned", what)
	}
	lsn, err := a.log.Append(9, []byte("on"))
	if err != nil || lsn != a.last+1 {
		t.Fatalf("%s: then append: LSN %d after %d, %v", what, lsn, a.last, err)
	}
	a.last, a.appended[lsn] = lsn, wrote{9, "on"}
	if err := a.log.Sync(lsn); err != nil {
		t.Fatalf("%s: then sync: %v", what, err)
	}
	a.durable = lsn
	if err := a.holds(d.kill(), lsn); err != nil {
		t.Fatalf("%s: then a kill: %v", what, err)
	}
	file, _, err := a.log.Rotate(text(fmt.Sprint("state ", a.log.FileID()+1)))
	if err != nil {
		t.Fatalf("%s: then rotate: %v", what, err)
	}
	a.file = file
}

// After a failed fsync nothing is retried, however many wait, and nobody hears of it before the mark is made by which the next process
// knows of it.
func TestFailedSync(t *testing.T) {
	d := newDisk(t)
	var log *Log
	marked, syncs := 0, 0
	d.o.Poisoned = func() {
		marked++
		if log.Err() != nil {
			t.Error("the error is known already")
		}
	}
	log = d.create(1, 1, "")
	d.Before(func(op crashfs.Op) error {
		if op.Kind != "sync" {
			return nil
		}
		syncs++
		return errInjected
	})
	add(t, log, "")
	first := log.Sync(1)
	if !errors.Is(first, ErrPoisoned) || !errors.Is(first, errInjected) {
		t.Fatalf("Sync: %v", first)
	}
	for range 3 {
		if err := log.Sync(1); err != first {
			t.Fatalf("Sync again: %v", err)
		}
	}
	if _, err := log.Append(2, nil); err != first {
		t.Fatalf("Append: %v", err)
	}
	if err := log.Close(); !errors.Is(err, first) {
		t.Fatalf("Close: %v", err)
	}
	if syncs != 1 || marked != 1 || log.DurableLSN() != 0 {
		t.Fatalf("%d fsyncs, marked %d times, DurableLSN %d", syncs, marked, log.DurableLSN())
	}
}
