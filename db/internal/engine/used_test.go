package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// When a block was last used is known to the minute: of a put, of a match that ended in it, after the store was closed, and for a block
// that loses its last child. What a killed process had not checkpointed is not known, and wrong for nobody.
func TestLastUsed(t *testing.T) { synctest.Test(t, testLastUsed) }

func testLastUsed(t *testing.T) {
	start := time.Now()
	at := func(minute int) { time.Sleep(time.Until(start.Add(time.Duration(minute) * time.Minute))) }
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	used := func() (out []int) { // by position
		for b, err := range s.Blocks(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			for len(out) <= b.First/16 {
				out = append(out, 0)
			}
			if !b.Used.IsZero() {
				out[b.First/16] = int(b.Used.Sub(start) / time.Minute)
			}
		}
		return out
	}
	want := func(how string, want ...int) {
		t.Helper()
		got := used()
		if len(got) != len(want) {
			t.Fatalf("%s: %v, expected %v", how, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%s: %v, expected %v", how, got, want)
			}
		}
	}
	match := func(n int) {
		t.Helper()
		x, err := m.Match(t.Context(), kv.Tokens(crashtest.Tokens(1, n)...), db.MatchOptions{})
		if err != nil || x.Tokens() != n {
			t.Fatalf("%d tokens, %v", x.Tokens(), err)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
	reopen := func() {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = storetest.Open(t, dir, storetest.Options())
		m = storetest.Model(t, s, crashtest.Plain())
	}
	at(100)
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1, 48)...))
	want("put", 100, 100, 100)
	at(200)
	match(32)
	at(250) // the match was earlier, whenever that is written
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("match", 100, 200, 100)
	reopen()
	want("opened again", 100, 200, 100)
	at(300)
	match(48)
	reopen()
	want("match before closing", 100, 200, 300)
	if _, err := m.Delete(t.Context(), kv.Tokens(crashtest.Tokens(1, 48)...)); err != nil {
		t.Fatal(err)
	}
	want("without the last", 100, 300)
	at(400)
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1, 64)...))
	storetest.Crash(s)
	s = storetest.Open(t, dir, storetest.Options())
	m = storetest.Model(t, s, crashtest.Plain())
	want("killed", 100, 300, 0, 0) // the deletion is replayed, and the blocks that were put after it
}
