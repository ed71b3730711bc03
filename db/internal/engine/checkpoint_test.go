package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A checkpoint that fails again and again takes no more room each time, and none of what is to be kept; the first that
// succeeds writes everything.
func TestCheckpointThatKeepsFailing(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	var first int64
	for i := range 40 {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(2+i, 32)})
		if err := s.Checkpoint(stopped); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if n := storetest.Engine(s).Inside().Wal().Bytes(); i == 1 {
			first = n
		} else if i > 1 && n > first+1<<20 {
			t.Fatalf("after %d checkpoints that failed the log takes %d bytes, after 2 it took %d", i+1, n, first)
		}
	}
	storetest.Must(m.Delete(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(2, 16)}))(t)
	check := func(s *db.Store) {
		t.Helper()
		m := storetest.Model(t, s, crashtest.Plain())
		storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 64)}, 64)
		storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 32)}, 0)
		for i := 1; i < 40; i++ {
			storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(2+i, 32)}, 32)
		}
	}
	image := storetest.Copy(t, dir)
	check(storetest.Open(t, image, storetest.Options()))
	storetest.OK(t, s.Checkpoint(t.Context()))
	if files, err := os.ReadDir(filepath.Join(dir, storetest.LogDir)); err != nil || len(files) > 2 {
		t.Fatalf("%d files of the log behind a checkpoint (%v)", len(files), err)
	}
	check(s)
	storetest.OK(t, s.Close())
	soundFolder(t, dir)
	check(storetest.Open(t, dir, storetest.Options()))
}

// A store that was killed when more waited to be destroyed than the head of a log file holds can be written to again.
func TestKilledWithMoreToDestroyThanALogHeadHolds(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	kept, gone := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}, kv.Prompt{Tokens: crashtest.Tokens(2, 16*200)}
	storetest.Put(t, m, kept)
	storetest.Put(t, m, gone)
	reader := storetest.Match(t, m, gone)
	defer reader.Close()
	storetest.Must(m.Delete(t.Context(), gone.Prefix(16)))(t)
	image := storetest.Copy(t, dir)
	const maxHead = 4000
	defer engine.SetMaxHead(maxHead)()
	for range 2 {
		s := storetest.Open(t, image, storetest.Options())
		m := storetest.Model(t, s, crashtest.Plain())
		if n := len(storetest.Engine(s).Inside().Head(nil)); n > maxHead {
			t.Fatalf("the head of the log takes %d bytes, at most %d", n, maxHead)
		}
		storetest.Expect(t, m, kept, 64)
		storetest.Expect(t, m, gone, 0)
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(3, 64)})
		storetest.Crash(s)
	}
}

// Of two records of one key the live one may be the older: a rebuild must not prefer the one that waits to be destroyed.
func TestRebuildKeepsTheLiveCopy(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	// Another put plans the first block, too, and comes second.
	w := halfPut(t, s, m, &p, 0)
	storetest.OK(t, w.Block(t.Context(), 0))
	storetest.Put(t, m, p)
	x := storetest.Match(t, m, p) // keeps the loser's bytes
	defer x.Close()
	storetest.OK(t, w.Publish(t.Context()))
	if w.Result.Records != 1 {
		t.Fatalf("%d records were written twice: this test shows nothing", w.Result.Records)
	}
	for range 2 {
		storetest.OK(t, s.Checkpoint(t.Context()))
	}
	storetest.Crash(s, x)
	storetest.OK(t, os.Remove(filepath.Join(dir, storetest.IndexFile)))
	s = storetest.Open(t, dir, storetest.Options())
	storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 64)
}
