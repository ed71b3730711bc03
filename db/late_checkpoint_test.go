package db

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

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
		if n := s.eng.wal.Bytes(); i == 1 {
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
