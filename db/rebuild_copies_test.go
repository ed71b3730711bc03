package db

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// Of two records of one key the live one may be the older: a rebuild must not prefer the one that waits to be destroyed.
func TestRebuildKeepsTheLiveCopy(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 64)}
	put(t, m, p)
	x, err := m.Match(ctx, p, MatchOptions{}) // keeps the loser's bytes
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	// What a put leaves that wrote the first block, too, and came second.
	w := &putter{e: s.eng, m: m, rows: filled(plain(), &p, 0, 64)}
	if err := w.plan(&p); err != nil {
		t.Fatal(err)
	}
	if err := w.write(ctx, 0, 0, 0, 16, w.rows); err != nil {
		t.Fatal(err)
	}
	if err := w.publish(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
	}
	crash(s)
	if err := os.Remove(filepath.Join(dir, indexName)); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, options())
	expect(t, model(t, s, plain()), p, 64)
}
