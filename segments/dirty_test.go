package segments

import (
	"slices"
	"strings"
	"testing"
)

// A Sync covers every append before it, even where another goroutine has marked the file and was stopped before it could tell
// the set; so does the one before a file with a footer is cut.
func TestSyncBesideOneThatMarksTheFile(t *testing.T) {
	s, f, _ := faultySet(t)
	loc := makeBlock(1, 1, 100).append(t, s, 1)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	g, err := s.segment(loc.Segment)
	if err != nil {
		t.Fatal(err)
	}
	other := func() { // goes as far as that
		g.mu.Lock()
		g.dirty = true
		g.mu.Unlock()
		f.set(nil)
	}
	synced := func(what, before string) {
		t.Helper()
		f.mu.Lock()
		defer f.mu.Unlock()
		sync := slices.IndexFunc(f.calls, func(c string) bool { return strings.HasPrefix(c, "sync ") })
		until := len(f.calls)
		if before != "" {
			until = slices.IndexFunc(f.calls, func(c string) bool { return strings.HasPrefix(c, before) })
		}
		if sync < 0 || sync > until {
			t.Errorf("%s: %v", what, f.calls)
		}
	}
	other()
	makeBlock(1, 2, 100).append(t, s, 1)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	synced("an append is not synced", "")
	other()
	if err := s.Seal(loc.Segment); err != nil {
		t.Fatal(err)
	}
	synced("a footer is not synced before the file is cut", "truncate ")
}
