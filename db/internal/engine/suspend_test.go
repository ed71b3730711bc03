package engine_test

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// openFiles lists what this process has open, or mapped, in dir.
func openFiles(t *testing.T, dir string) (out []string) {
	fds, err := os.ReadDir("/proc/self/fd")
	storetest.OK(t, err)
	for _, fd := range fds {
		if name, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(name, dir) {
			out = append(out, name)
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	storetest.OK(t, err)
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
	s := storetest.Open(t, dir, storetest.Options())
	d := crashtest.Plain()
	m := storetest.Model(t, s, d)
	one, two, three := kv.Prompt{Tokens: crashtest.Tokens(1, 200)}, kv.Prompt{Tokens: crashtest.Tokens(2, 200)}, kv.Prompt{Tokens: crashtest.Tokens(3, 200)}
	storetest.Put(t, m, one)
	storetest.Put(t, m, three)
	storetest.Expect(t, m, one, 200)
	matches := map[string]*db.Match{}
	for name, p := range map[string]kv.Prompt{"kept": one, "deleted": three} {
		x := storetest.Match(t, m, p)
		defer x.Close()
		matches[name] = x
	}
	if runtime.GOOS == "linux" && len(openFiles(t, dir)) == 0 {
		t.Fatal("an open store has no open file: the test looks in the wrong place")
	}
	before := storetest.Stats(t, s)
	pinned, _ := storetest.Engine(s).Pins.Counts()
	storetest.OK(t, s.Suspend(t.Context()))
	if runtime.GOOS == "linux" {
		if left := openFiles(t, dir); len(left) > 0 {
			t.Errorf("suspended, but open: %v", left)
		}
	}
	if _, err := m.Match(t.Context(), one, db.MatchOptions{}); !errors.Is(err, db.ErrSuspended) {
		t.Errorf("match while suspended: %v", err)
	}
	inChild(t, "use", dir)
	storetest.OK(t, s.Resume(t.Context()))
	after := storetest.Stats(t, s)
	if now, _ := storetest.Engine(s).Pins.Counts(); now != pinned || after.Puts != before.Puts || after.Lookup.N != before.Lookup.N || before.Puts == 0 {
		t.Errorf("%d blocks are pinned, before %d; %d puts are counted, before %d", now, pinned, after.Puts, before.Puts)
	}
	for name, want := range map[string]int{"kept": 200, "deleted": 0} {
		x := matches[name]
		rows := storetest.Empty(d, 200)
		got, err := x.Restore(t.Context(), rows)
		if err != nil || got.Tokens != want {
			t.Errorf("match of what was %s: %d tokens (%v), %v", name, got.Tokens, got.Reason, err)
		}
		p := x.Prompt()
		storetest.CheckRows(t, d, &p, rows, got.Tokens)
	}
	storetest.Expect(t, m, one, 200)
	storetest.Expect(t, m, two, 200) // the other process stored it
	storetest.Expect(t, m, three, 0) // and deleted this
	if _, err := matches["kept"].Extend(t.Context(), kv.Prompt{Tokens: crashtest.Concat(one.Tokens, crashtest.Tokens(9, 50))},
		storetest.Filled(d, &kv.Prompt{Tokens: crashtest.Concat(one.Tokens, crashtest.Tokens(9, 50))}, 200, 250), db.PutOptions{}); err != nil {
		t.Error(err)
	}
	storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Concat(one.Tokens, crashtest.Tokens(9, 50))}, 250)
}

// Methods of a match, and a writer that waits for all of them to end, do not wait for one another in a circle.
func TestMatchMethodsAndSuspend(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	storetest.Put(t, m, p)
	x := storetest.Match(t, m, p)
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
	again(func() { x.Extend(t.Context(), p, storetest.Filled(crashtest.Plain(), &p, 0, 64), db.PutOptions{}) })
	for range 2 {
		again(func() { x.Restore(t.Context(), storetest.Empty(crashtest.Plain(), 64)) })
	}
	again(func() {
		s.Suspend(t.Context())
		if err := s.Resume(t.Context()); err != nil {
			t.Error(err)
		}
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
