package db

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// A log file that something else was written over is a log that is lost: what the segments hold is usable without it.
func TestLogOfRubbish(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	p := kv.Prompt{Tokens: tokens(1, 100)}
	put(t, model(t, s, plain()), p)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, walDir, "*.wal"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.WriteFile(files[0], bytes.Repeat([]byte("something else. "), 256), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Verify(ctx, dir, VerifyOptions{}); err != nil || len(r.Damage) == 0 || r.Damage[0].File != files[0] {
		t.Errorf("verify: %+v, %v", r, err)
	}
	s = open(t, dir, options())
	expect(t, model(t, s, plain()), p, 100)
}

// A folder in the place of a segment is a segment that is missing: it is named, and does not keep the rest from work.
func TestFolderForSegment(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	p, q := kv.Prompt{Tokens: tokens(1, 100)}, kv.Prompt{Tokens: tokens(2, 60)}
	put(t, model(t, s, plain()), p)
	put(t, model(t, s, windowed(40)), q)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, segmentsDir, "*.seg"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(files[0], "with something in it"), 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := Verify(ctx, dir, VerifyOptions{})
	if err != nil || !slices.ContainsFunc(r.Damage, func(d *CorruptError) bool { return d.File == files[0] }) {
		t.Errorf("verify: %+v, %v", r, err)
	}
	s = open(t, dir, options())
	m := model(t, s, plain())
	expect(t, m, p, 0)
	expect(t, model(t, s, windowed(40)), q, 60)
	if _, err := m.Delete(ctx, p); err != nil {
		t.Errorf("delete: %v", err)
	}
	for range 3 {
		if err := s.Checkpoint(ctx); err != nil {
			t.Fatalf("checkpoint: %v", err)
		}
	}
	put(t, m, p)
	expect(t, m, p, 100)
}

// A folder in the place of the Bloom filter's file keeps no checkpoint from being made: it can be rebuilt.
func TestFolderForBloom(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	p := kv.Prompt{Tokens: tokens(1, 100)}
	put(t, model(t, s, plain()), p)
	if err := os.MkdirAll(filepath.Join(dir, bloomName, "with something in it"), 0o700); err != nil {
		t.Fatal(err)
	}
	before := s.eng.wal.FileID()
	if err := s.Checkpoint(ctx); err != nil {
		t.Errorf("checkpoint: %v", err)
	}
	if files, err := Collect(s.Log(ctx)); err != nil || len(files) != 1 || files[0].ID != before+1 {
		t.Errorf("the log has %+v after a checkpoint in file %d, %v", files, before, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, options())
	expect(t, model(t, s, plain()), p, 100)
}

// Whatever lies in the place of index.db, it is built anew; links are not followed.
func TestLinkForIndex(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere")
	s := open(t, dir, options())
	p := kv.Prompt{Tokens: tokens(1, 100)}
	put(t, model(t, s, plain()), p)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, indexName)
	if err := os.Rename(name, elsewhere); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, name); err != nil {
		t.Skipf("SKIPPED: no links here: %v", err)
	}
	s = open(t, dir, options())
	expect(t, model(t, s, plain()), p, 100)
	if len(s.IndexProblems()) == 0 {
		t.Error("a link was followed")
	}
	if after, err := os.ReadFile(elsewhere); err != nil || !bytes.Equal(before, after) {
		t.Errorf("what the link leads to was changed (%v)", err)
	}
}

// Links in the place of the folders are not followed either, and folders that others can write to are refused.
func TestFoldersOfOthers(t *testing.T) {
	for _, sub := range []string{walDir, segmentsDir} {
		dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere")
		s := open(t, dir, options())
		p := kv.Prompt{Tokens: tokens(1, 100)}
		put(t, model(t, s, plain()), p)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, sub)
		if err := os.Rename(path, elsewhere); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(elsewhere, path); err != nil {
			t.Skipf("SKIPPED: no links here: %v", err)
		}
		before := tree(t, elsewhere)
		for _, readOnly := range []bool{true, false} {
			o := options()
			o.ReadOnly, o.AllowSharedDir = readOnly, true
			if s, err := Open(ctx, dir, o); err == nil {
				s.Close()
				t.Errorf("%s is a link and was followed, read-only %t", sub, readOnly)
			}
		}
		sameTree(t, before, tree(t, elsewhere), "an Open through a link")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(elsewhere, path); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, options())
		expect(t, model(t, s, plain()), p, 100)
	}
}

// Whoever rebuilds the index gets the store, however busy it is.
func TestOwnerIsNotStarved(t *testing.T) {
	l := newLife()
	var users sync.WaitGroup
	var stop atomic.Bool
	inside := make(chan struct{}, 8)
	for range 8 {
		users.Go(func() {
			for !stop.Load() {
				if err := l.enter(false); err != nil {
					t.Error(err)
					return
				}
				inside <- struct{}{}
				for len(inside) < 2 && !stop.Load() && l.users.Load() > 1 { // rather two at a time than none
					runtime.Gosched()
				}
				time.Sleep(time.Millisecond)
				<-inside
				l.leave()
			}
		})
	}
	owned := make(chan struct{})
	go func() {
		for range 3 {
			l.own(nil)
			l.disown()
		}
		close(owned)
	}()
	select {
	case <-owned:
	case <-time.After(20 * time.Second):
		t.Error("after 20 s of operations that overlap, nobody owns the store")
	}
	stop.Store(true)
	users.Wait()
	<-owned
}

// A record that somebody else zeroed is damage, not one that was deleted or evicted after the match.
func TestZeroedRecordIsDamage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 100)}
	put(t, m, p)
	for x, err := range s.Blocks(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if x.First != 48 {
			continue
		}
		f, err := os.OpenFile((&engine{dir: dir}).segmentPath(x.Segment), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(make([]byte, 256), x.Offset); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	x, err := m.Match(ctx, p, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	var bad *CorruptError
	got, err := x.Restore(ctx, empty(plain(), 100))
	if err != nil || got.Tokens != 48 || got.Reason.Code != Damaged || !errors.As(got.Reason.Err, &bad) || bad.Found != "zeros" {
		t.Errorf("restored %d tokens (%v, %v), %v", got.Tokens, got.Reason, got.Reason.Err, err)
	}
	put(t, m, p)
	expect(t, m, p, 100)
}

// A state or window rows that are damaged are said to be so, by the restore that finds it and by every match after it, and are
// put again.
func TestDamagedGroupIsSaidToBe(t *testing.T) {
	for _, d := range []kv.Descriptor{opaque(), windowed(40)} {
		t.Run(d.Name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, options())
			m := model(t, s, d)
			short, long := kv.Prompt{Tokens: tokens(1, 48)}, kv.Prompt{Tokens: tokens(1, 100)}
			put(t, m, short)
			put(t, m, long)
			for x, err := range s.Blocks(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				if x.Group != 1 || x.First+x.Tokens != 100 {
					continue
				}
				f, err := os.OpenFile((&engine{dir: dir}).segmentPath(x.Segment), os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteAt([]byte("no record"), x.Offset); err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 2 {
				n, reason := restore(t, m, long)
				if n >= 100 || n < 48 || reason.Code != Damaged {
					t.Errorf("restore %d: %d tokens (%v)", i, n, reason)
				}
			}
			put(t, m, long)
			expect(t, m, long, 100)
		})
	}
}
