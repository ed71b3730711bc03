package db

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

// openFiles lists what this process has open, or mapped, in dir.
func openFiles(t *testing.T, dir string) (out []string) {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if name, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(name, dir) {
			out = append(out, name)
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, dir) {
			out = append(out, "map: "+line)
		}
	}
	return out
}

// Between Suspend and Resume the store holds nothing of the system's, another process may use it, and afterwards handles
// and matches go on with what is stored now.
func TestSuspend(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	d := plain()
	m := model(t, s, d)
	one, two, three := kv.Prompt{Tokens: tokens(1, 200)}, kv.Prompt{Tokens: tokens(2, 200)}, kv.Prompt{Tokens: tokens(3, 200)}
	put(t, m, one)
	put(t, m, three)
	expect(t, m, one, 200)
	matches := map[string]*Match{}
	for name, p := range map[string]kv.Prompt{"kept": one, "deleted": three} {
		x, err := m.Match(ctx, p, MatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		matches[name] = x
	}
	if runtime.GOOS == "linux" && len(openFiles(t, dir)) == 0 {
		t.Fatal("an open store has no open file: the test looks in the wrong place")
	}
	if err := s.Suspend(ctx); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" {
		if left := openFiles(t, dir); len(left) > 0 {
			t.Errorf("suspended, but open: %v", left)
		}
	}
	if _, err := m.Match(ctx, one, MatchOptions{}); !errors.Is(err, ErrSuspended) {
		t.Errorf("match while suspended: %v", err)
	}
	inChild(t, "use", dir)
	if err := s.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"kept": 200, "deleted": 0} {
		x := matches[name]
		rows := empty(d, 200)
		got, err := x.Restore(ctx, rows)
		if err != nil || got.Tokens != want {
			t.Errorf("match of what was %s: %d tokens (%v), %v", name, got.Tokens, got.Reason, err)
		}
		p := x.Prompt()
		checkRows(t, d, &p, rows, got.Tokens)
	}
	expect(t, m, one, 200)
	expect(t, m, two, 200) // the other process stored it
	expect(t, m, three, 0) // and deleted this
	if _, err := matches["kept"].Extend(ctx, kv.Prompt{Tokens: concat(one.Tokens, tokens(9, 50))},
		filled(d, &kv.Prompt{Tokens: concat(one.Tokens, tokens(9, 50))}, 200, 250), PutOptions{}); err != nil {
		t.Error(err)
	}
	expect(t, m, kv.Prompt{Tokens: concat(one.Tokens, tokens(9, 50))}, 250)
}

// Methods of a match, and a writer that waits for all of them to end, do not wait for one another in a circle.
func TestMatchMethodsAndSuspend(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 64)}
	put(t, m, p)
	x, err := m.Match(ctx, p, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	again := func(f func()) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	again(func() { x.Extend(ctx, p, filled(plain(), &p, 0, 64), PutOptions{}) })
	for range 2 {
		again(func() { x.Restore(ctx, empty(plain(), 64)) })
	}
	again(func() { // what Suspend and Resume begin with
		s.life.own(nil)
		defer s.life.disown()
	})
	finished := make(chan struct{})
	go func() {
		time.Sleep(300 * time.Millisecond)
		close(stop)
		wg.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(20 * time.Second):
		t.Fatal("deadlock")
	}
	x.Close()
}

// A store suspends itself when its index is found damaged and cannot be rebuilt just now. It lets go of its files then, so that no
// Suspend or Close that comes later can make anything durable.

// suspendsItself has the index of w's store found damaged while segments can neither be opened nor mapped, and fails what also says.
func (w *crashRun) suspendsItself(t *testing.T, also func(crashfs.Op) error) {
	t.Helper()
	w.d.Before(func(op crashfs.Op) error {
		if (op.Kind == "map" || op.Kind == "open") && strings.HasPrefix(op.Name, segmentsDir) {
			return vfs.PassingErrors[0]
		}
		if also != nil {
			return also(op)
		}
		return nil
	})
	losesIndex(t, w.s)
	w.d.Before(nil)
}

// losesIndex says that the index of a store is damaged, and waits until the store, which cannot rebuild it, has suspended itself.
func losesIndex(t *testing.T, s *Store) {
	t.Helper()
	s.indexDamaged(errors.New("a test says so"))
	var err error
	for deadline := time.Now().Add(time.Minute); !errors.Is(err, ErrSuspended) && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		_, err = s.Stats()
	}
	if !errors.Is(err, ErrSuspended) {
		t.Fatalf("not suspended: %v", err)
	}
}

func failSyncs(where string) func(crashfs.Op) error {
	return func(op crashfs.Op) error {
		if op.Kind == "sync" && strings.HasPrefix(op.Name, where) {
			return errDisk
		}
		return nil
	}
}

// A Close that reports success has made durable what was acknowledged.
func TestCloseOfAStoreThatSuspendedItself(t *testing.T) {
	w := crashCase(t, crashMode{})
	w.steps(t, putAll()...)
	w.suspendsItself(t, nil)
	w.steps(t, crashOp{kind: "close"})
	w.d.Crash()
	w.cuts(t, 8, "")
}

// So has a Suspend.
func TestSuspendOfAStoreThatSuspendedItself(t *testing.T) {
	w := crashCase(t, crashMode{})
	w.steps(t, putAll()...)
	w.suspendsItself(t, nil)
	w.suspends(t)
	w.cuts(t, 8, "")
}

// suspends has Suspend report success, which the journal takes for a checkpoint, and then ends the process.
func (w *crashRun) suspends(t *testing.T) {
	t.Helper()
	if err := w.s.Suspend(ctx); err != nil {
		t.Fatal(err)
	}
	copy(w.j.safe, w.j.have)
	w.d.Crash()
	w.kill()
}

// An fsync that failed when the store suspended itself is reported by Suspend and Close. After a Resume all is well.
func TestFailedSyncOfAStoreThatSuspendedItself(t *testing.T) {
	for _, where := range []string{segmentsDir, walDir} {
		w := crashCase(t, crashMode{})
		w.steps(t, putAll()...)
		w.suspendsItself(t, failSyncs(where))
		if !w.s.eng.Inside().Unsynced() {
			t.Fatal("no fsync failed")
		}
		for range 2 {
			if err := w.s.Suspend(ctx); !errors.Is(err, errDisk) {
				t.Errorf("%s: suspend: %v", where, err)
			}
		}
		if err := w.s.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		w.suspends(t)
		w.cuts(t, 4, "")

		w = crashCase(t, crashMode{})
		w.steps(t, putAll()...)
		w.suspendsItself(t, failSyncs(where))
		if err := w.s.Close(); !errors.Is(err, errDisk) {
			t.Errorf("%s: close: %v", where, err)
		}
	}
}

// So is one that had failed before.
func TestPoisonedStoreThatSuspendedItself(t *testing.T) {
	for _, where := range []string{segmentsDir, walDir} {
		w := crashCase(t, crashMode{})
		w.steps(t, putAll()...)
		w.d.Before(failSyncs(where))
		if err := w.s.Sync(ctx); !errors.Is(err, ErrPoisoned) {
			t.Fatalf("sync: %v", err)
		}
		w.suspendsItself(t, nil)
		if err := w.s.Close(); !errors.Is(err, ErrPoisoned) {
			t.Errorf("%s: close: %v", where, err)
		}
	}
}
