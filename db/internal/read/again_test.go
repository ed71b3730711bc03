package read_test

import (
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// What was restored around the page cache is read into it afterwards if it has a name, or was matched before: all of it, once. Else nothing
// is. Pressure and Suspend have it forgotten.
func TestReadAgain(t *testing.T) {
	disk := storetest.Cold(nil)
	dir := memdir.Disk(t)
	s := storetest.OpenOn(t, disk, dir, storetest.Options())
	m := storetest.Model(t, s, wide())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 700)}
	storetest.Put(t, m, p)
	var stored int64
	for b, err := range s.Blocks(t.Context()) {
		storetest.OK(t, err)
		stored += b.Bytes
	}
	var mu sync.Mutex
	var asked, reads int64
	disk.Before(func(c storetest.Call) error {
		mu.Lock()
		defer mu.Unlock()
		if c.Kind == "willneed" {
			asked += c.N
		}
		if c.Kind == "readdirect" {
			reads++
		}
		return nil
	})
	so := func() int64 { mu.Lock(); defer mu.Unlock(); return asked }
	again := func() bool { return storetest.Engine(s).Source.Again.Waiting() }

	storetest.Expect(t, m, p, 700)
	if again() || so() != 0 {
		t.Fatalf("waiting %t, %d bytes were asked for, of what nobody ever wanted before", again(), so())
	}
	storetest.OK(t, s.Checkpoint(t.Context())) // the index gets to know of that match
	storetest.Expect(t, m, p, 700)
	storetest.Eventually(t, "all asked for once more", func() bool { return so() >= stored && !again() })
	if so() != stored {
		t.Errorf("%d bytes asked for, of %d", so(), stored)
	}

	other := kv.Prompt{Tokens: crashtest.Tokens(2, 700)}
	storetest.Put(t, m, other)
	storetest.OK(t, m.SetRef(t.Context(), "other", other, db.RefOptions{}))
	before := so()
	if n, err := m.Prefetch(t.Context(), other, db.MatchOptions{}); n != 700 || err != nil || so() != before+stored {
		t.Fatalf("prefetched %d tokens, %v, %d bytes", n, err, so()-before)
	}
	mu.Lock()
	reads = 0
	mu.Unlock()
	storetest.Expect(t, m, other, 700)
	mu.Lock()
	if reads != 0 {
		t.Errorf("%d reads around the page cache of what is on its way into it", reads)
	}
	mu.Unlock()
	storetest.Expect(t, m, p, 700) // the other prompt was not asked for
	mu.Lock()
	if reads == 0 {
		t.Error("no reads around the page cache of what nobody asked for")
	}
	mu.Unlock()
	storetest.Eventually(t, "nothing waits", func() bool { return !again() })

	third := kv.Prompt{Tokens: crashtest.Tokens(3, 700)}
	storetest.Put(t, m, third)
	storetest.OK(t, m.SetRef(t.Context(), "third", third, db.RefOptions{}))
	before = so()
	storetest.Expect(t, m, third, 700)
	storetest.Eventually(t, "a prompt with a name asked for once more", func() bool { return so() >= before+stored && !again() })

	e := storetest.Engine(s)
	for _, end := range []func() error{
		func() error { _, err := s.Pressure(t.Context(), db.Moderate); return err },
		func() error { return s.Suspend(t.Context()) },
	} {
		mem, ok := e.Source.Ring.Take()
		if !ok {
			t.Fatal("the ring is taken")
		}
		before := so()
		e.Source.Again.Add([]segments.Loc{{Segment: 1, Offset: 8192, Length: 5 << 20}})
		if !again() || so() != before {
			t.Errorf("waiting %t beside a cold restore, %d bytes were asked for", again(), so()-before)
		}
		if err := end(); err != nil || again() {
			t.Errorf("%v; waiting %t", err, again())
		}
		e.Source.Ring.Give(mem)
		e.Source.Ring.Free()
		if so() != before {
			t.Errorf("%d bytes were asked for after they were forgotten", so()-before)
		}
	}
}

// Restores add while several drop: Drop waits for all who were at work, and no more.
func TestReadAgainTogether(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	a := storetest.Engine(s).Source.Again
	var wait sync.WaitGroup
	for i := range 6 {
		wait.Go(func() {
			for range 3000 {
				if i < 2 {
					a.Add([]segments.Loc{{Segment: 1, Offset: 8192, Length: 1 << 20}})
				} else {
					a.Drop()
				}
				time.Sleep(time.Duration(i) * time.Microsecond)
			}
		})
	}
	wait.Wait()
	a.Drop()
	a.Add([]segments.Loc{{Segment: 1, Offset: 8192, Length: 100 << 20}})
	a.Drop()
	if a.Waiting() {
		t.Error("something waits")
	}
}
