package db

import (
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/kv"
)

// When a block was last used is known to the minute: of a put, of a match that ended in it, after the store was closed, and for a block
// that loses its last child. What a killed process had not checkpointed is not known, and wrong for nobody.
func TestLastUsed(t *testing.T) {
	defer engine.SetMinute(func() uint32 { return 0 })()
	at := func(m uint32) { engine.SetMinute(func() uint32 { return m }) }
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	used := func() (out []uint32) { // by position
		for b, err := range s.Blocks(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			for len(out) <= b.First/16 {
				out = append(out, 0)
			}
			if !b.Used.IsZero() {
				out[b.First/16] = uint32(b.Used.Sub(time.Unix(0, 0)) / time.Minute)
			}
		}
		return out
	}
	want := func(how string, want ...uint32) {
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
		x, err := m.Match(ctx, kv.Tokens(tokens(1, n)...), MatchOptions{})
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
		s = open(t, dir, options())
		m = model(t, s, plain())
	}
	at(100)
	put(t, m, kv.Tokens(tokens(1, 48)...))
	want("put", 100, 100, 100)
	at(200)
	match(32)
	at(250) // the match was earlier, whenever that is written
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	want("match", 100, 200, 100)
	reopen()
	want("opened again", 100, 200, 100)
	at(300)
	match(48)
	reopen()
	want("match before closing", 100, 200, 300)
	if _, err := m.Delete(ctx, kv.Tokens(tokens(1, 48)...)); err != nil {
		t.Fatal(err)
	}
	want("without the last", 100, 300)
	at(400)
	put(t, m, kv.Tokens(tokens(1, 64)...))
	crash(s)
	s = open(t, dir, options())
	m = model(t, s, plain())
	want("killed", 100, 300, 0, 0) // the deletion is replayed, and the blocks that were put after it
}
