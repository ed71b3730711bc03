package db

import (
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/wal"
)

// A store that was killed when more waited to be destroyed than the head of a log file holds can be written to again.
func TestKilledWithMoreToDestroyThanALogHeadHolds(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	kept, gone := kv.Prompt{Tokens: tokens(1, 64)}, kv.Prompt{Tokens: tokens(2, 16*200)}
	put(t, m, kept)
	put(t, m, gone)
	reader, err := m.Match(ctx, gone, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := m.Delete(ctx, gone.Prefix(16)); err != nil {
		t.Fatal(err)
	}
	image := copyStore(t, dir)
	defer func() { maxHead = wal.MaxPayload }()
	maxHead = 4000
	for range 2 {
		s := open(t, image, options())
		m := model(t, s, plain())
		if n := len(s.eng.head(nil)); n > maxHead {
			t.Fatalf("the head of the log takes %d bytes, at most %d", n, maxHead)
		}
		expect(t, m, kept, 64)
		expect(t, m, gone, 0)
		put(t, m, kv.Prompt{Tokens: tokens(3, 64)})
		crash(s)
	}
}
