package db

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/write"
	"github.com/dormousekv/dormouse/kv"
)

// A checkpoint that fails again and again takes no more room each time, and none of what is to be kept; the first that
// succeeds writes everything.
func TestCheckpointThatKeepsFailing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	put(t, m, kv.Prompt{Tokens: tokens(1, 64)})
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	var first int64
	for i := range 40 {
		put(t, m, kv.Prompt{Tokens: tokens(2+i, 32)})
		if err := s.Checkpoint(stopped); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if n := s.eng.Inside().Wal().Bytes(); i == 1 {
			first = n
		} else if i > 1 && n > first+1<<20 {
			t.Fatalf("after %d checkpoints that failed the log takes %d bytes, after 2 it took %d", i+1, n, first)
		}
	}
	if _, err := m.Delete(ctx, kv.Prompt{Tokens: tokens(2, 16)}); err != nil {
		t.Fatal(err)
	}
	check := func(s *Store) {
		t.Helper()
		m := model(t, s, plain())
		expect(t, m, kv.Prompt{Tokens: tokens(1, 64)}, 64)
		expect(t, m, kv.Prompt{Tokens: tokens(2, 32)}, 0)
		for i := 1; i < 40; i++ {
			expect(t, m, kv.Prompt{Tokens: tokens(2+i, 32)}, 32)
		}
	}
	image := copyStore(t, dir)
	check(open(t, image, options()))
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(filepath.Join(dir, walDir)); err != nil || len(files) > 2 {
		t.Fatalf("%d files of the log behind a checkpoint (%v)", len(files), err)
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	report, err := Verify(ctx, dir, VerifyOptions{})
	if err != nil || len(report.Damage) > 0 {
		t.Fatal(err, report.Damage)
	}
	check(open(t, dir, options()))
}

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
	const maxHead = 4000
	defer engine.SetMaxHead(maxHead)()
	for range 2 {
		s := open(t, image, options())
		m := model(t, s, plain())
		if n := len(s.eng.Inside().Head(nil)); n > maxHead {
			t.Fatalf("the head of the log takes %d bytes, at most %d", n, maxHead)
		}
		expect(t, m, kept, 64)
		expect(t, m, gone, 0)
		put(t, m, kv.Prompt{Tokens: tokens(3, 64)})
		crash(s)
	}
}

// Of two records of one key the live one may be the older: a rebuild must not prefer the one that waits to be destroyed.
func TestRebuildKeepsTheLiveCopy(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 64)}
	// Another put plans the first block, too, and comes second.
	w := s.eng.Inside().NewPut(m.ms, filled(plain(), &p, 0, 64), nil, write.Options{})
	if err := errors.Join(w.Plan(&p), w.Block(ctx, 0)); err != nil {
		t.Fatal(err)
	}
	put(t, m, p)
	x, err := m.Match(ctx, p, MatchOptions{}) // keeps the loser's bytes
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if err := w.Publish(ctx); err != nil {
		t.Fatal(err)
	}
	if w.Result.Records != 1 {
		t.Fatalf("%d records were written twice: this test shows nothing", w.Result.Records)
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
