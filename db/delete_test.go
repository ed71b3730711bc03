package db

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// crash leaves the files as a SIGKILL would: nothing is synced, sealed or checkpointed.
func crash(s *Store) {
	s.life.own(nil)
	defer s.life.disown()
	e := s.eng
	s.eng = nil
	e.halt()
	e.abandon()
	s.unlock()
}

// copyStore copies a store's files as they are: of an open store, it is what a SIGKILL at this moment would leave.
func copyStore(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(to, 0o700); err != nil {
		t.Fatal(err)
	}
	return to
}

// canary is a prompt whose last tokens and rows are like no other bytes in a store.
type canary struct {
	d       kv.Descriptor
	p       kv.Prompt
	start   int // the secret begins here
	needles map[[16]byte]string
	first   [1 << 16]bool // by the first two bytes of a needle
}

const canaryStart = 96 // six whole blocks of what others may know

func newCanary(d kv.Descriptor, scope string) *canary {
	c := &canary{d: d, start: canaryStart, needles: map[[16]byte]string{}}
	c.p = kv.Prompt{Tokens: tokens(1, c.start), Scope: scope, ScopeStart: c.start}
	for i := range 150 {
		c.p.Tokens = append(c.p.Tokens, kv.Token(0x5AC3_1D00+i*7919))
	}
	for i := c.start; i+4 <= len(c.p.Tokens); i++ {
		var b []byte
		for _, tok := range c.p.Tokens[i : i+4] {
			b = binary.LittleEndian.AppendUint32(b, uint32(tok))
		}
		c.add(b, fmt.Sprintf("tokens from %d on", i))
	}
	for ti, tensor := range d.Tensors {
		for pos := c.start; pos < len(c.p.Tokens); pos++ {
			row := truth(d, &c.p, ti, pos)
			for at := 0; at+16 <= tensor.RowBytes(); at += 16 {
				c.add(row[at:at+16], fmt.Sprintf("tensor %d row %d", ti, pos))
			}
		}
	}
	return c
}

func (c *canary) add(b []byte, what string) {
	c.needles[[16]byte(b)] = what
	c.first[binary.LittleEndian.Uint16(b)] = true
}

// grep names the places in the files of dir where the secret shows.
func (c *canary) grep(t testing.TB, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i := 0; i+16 <= len(b); i++ {
			if !c.first[binary.LittleEndian.Uint16(b[i:])] {
				continue
			}
			if what, ok := c.needles[[16]byte(b[i:i+16])]; ok {
				found = append(found, fmt.Sprintf("%s at %d: %s", filepath.Base(path), i, what))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (c *canary) shows(t testing.TB, dir, when string) {
	t.Helper()
	if len(c.grep(t, dir)) == 0 {
		t.Fatalf("%s: the secret is in no file: the test greps for the wrong bytes", when)
	}
}

func (c *canary) gone(t testing.TB, dir, when string) {
	t.Helper()
	if found := c.grep(t, dir); len(found) > 0 {
		t.Fatalf("%s: the secret is in %d places: %s", when, len(found), found[0])
	}
}

// live stores the secret the way a conversation does: turn after turn, some stored twice at once, with whatever else
// leaves copies behind.
func (c *canary) live(t testing.TB, s *Store, history string) *Model {
	t.Helper()
	m := model(t, s, c.d)
	n := len(c.p.Tokens)
	put(t, m, kv.Prompt{Tokens: concat(tokens(1, c.start), tokens(7, 40))}) // a neighbour that stays
	put(t, m, c.p.Prefix(n-100))
	if history == "checkpoint" || history == "compact" {
		if err := s.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if _, err := m.Put(ctx, c.p.Prefix(n-41), filled(c.d, &c.p, 0, n-41), PutOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if history == "compact" {
		put(t, m, kv.Prompt{Tokens: tokens(3, 300)})
		if _, err := m.Delete(ctx, kv.Prompt{Tokens: tokens(3, 300)[:5]}); err != nil {
			t.Fatal(err)
		}
		if err := s.Suspend(ctx); err != nil { // so that there is a finished segment to rewrite
			t.Fatal(err)
		}
		if err := s.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		put(t, m, kv.Prompt{Tokens: tokens(4, 30)})
		if done, err := s.Compact(ctx, CompactOptions{All: true}); err != nil || done.Records == 0 {
			t.Fatalf("%+v, %v", done, err)
		}
	}
	x, err := m.Match(ctx, c.p, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Extend(ctx, c.p, filled(c.d, &c.p, x.Tokens(), n), PutOptions{}); err != nil {
		t.Fatal(err)
	}
	x.Close()
	if err := m.SetRef(ctx, "secret", c.p, RefOptions{Pinned: true}); err != nil {
		t.Fatal(err)
	}
	if history == "written" {
		if err := s.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, m, c.p, n)
	c.shows(t, s.Dir(), "before the deletion")
	return m
}

// deletions are the ways to be rid of the secret, with what is left of its prompt.
var deletions = []struct {
	name string
	do   func(s *Store, m *Model, p kv.Prompt) error
	left int
}{
	{"prefix", func(s *Store, m *Model, p kv.Prompt) error {
		_, err := m.Delete(ctx, p.Prefix(canaryStart+1))
		return err
	}, canaryStart},
	{"scope", func(s *Store, m *Model, p kv.Prompt) error {
		_, err := s.DeleteScope(ctx, p.Scope)
		return err
	}, canaryStart},
	{"retire", func(s *Store, m *Model, p kv.Prompt) error { return s.Retire(ctx, m.Fingerprint()) }, 0},
}

// After a deletion and Sync no token and no row is in any file, and nothing is found again: not after a reopen, not
// without index.db, not without the Bloom filter. DORMOUSE_DELETE=all runs every case.
func TestDeletedBytesAreGone(t *testing.T) {
	for _, history := range []string{"fresh", "checkpoint", "compact", "written"} {
		for _, del := range deletions {
			for i, end := range []string{"sync", "kill", "kill with a lease", "lease"} {
				if i%2 == 0 && os.Getenv("DORMOUSE_DELETE") != "all" && (testing.Short() || history == "fresh" || history == "checkpoint") {
					continue // the other ends see more
				}
				t.Run(history+" "+del.name+" "+end, func(t *testing.T) {
					testDeleted(t, history, del.do, del.left, end)
				})
			}
		}
	}
}

func testDeleted(t *testing.T, history string, del func(*Store, *Model, kv.Prompt) error, left int, end string) {
	c := newCanary(plain(), "alice")
	dir := t.TempDir()
	s := open(t, dir, options())
	m := c.live(t, s, history)
	var x *Match
	if end == "lease" || end == "kill with a lease" {
		var err error
		if x, err = m.Match(ctx, c.p, MatchOptions{}); err != nil {
			t.Fatal(err)
		}
		defer x.Close()
	}
	var late *Match // restores for the first time after the deletion
	if end == "lease" {
		if got, err := x.Restore(ctx, empty(c.d, len(c.p.Tokens))); err != nil || got.Tokens != len(c.p.Tokens) {
			t.Fatalf("restored %d tokens (%v), %v", got.Tokens, got.Reason, err)
		}
		var err error
		if late, err = m.Match(ctx, c.p, MatchOptions{}); err != nil {
			t.Fatal(err)
		}
		defer late.Close()
	}
	if err := del(s, m, c.p); err != nil {
		t.Fatal(err)
	}
	switch end {
	case "sync":
		if err := s.Sync(ctx); err != nil {
			t.Fatal(err)
		}
	case "kill":
		crash(s)
		s = open(t, dir, options())
		if err := s.Sync(ctx); err != nil {
			t.Fatal(err)
		}
	case "kill with a lease":
		dir = copyStore(t, dir)
		c.shows(t, dir, "before the kill")
		s = open(t, dir, options())
		if err := s.Sync(ctx); err != nil {
			t.Fatal(err)
		}
	case "lease":
		var pending *PendingError
		err := s.Sync(ctx)
		if left > 0 && (!errors.As(err, &pending) || pending.Records < 9 || pending.Bytes <= 0 || pending.Leases < 1) {
			t.Fatalf("Sync with an open match: %v", err)
		}
		if err == nil {
			t.Error("Sync says that nothing is pending while a match can see the bytes")
		}
		if left > 0 { // the handle of a retired model restores nothing
			rows := empty(c.d, len(c.p.Tokens))
			got, err := x.Restore(ctx, rows)
			if err != nil || got.Tokens != len(c.p.Tokens) {
				t.Fatalf("the open match restored %d tokens (%v), %v", got.Tokens, got.Reason, err)
			}
			checkRows(t, c.d, &c.p, rows, got.Tokens)
			rows = empty(c.d, len(c.p.Tokens))
			got, err = late.Restore(ctx, rows)
			if err != nil || got.Tokens < left || got.Tokens < len(c.p.Tokens) && got.Reason.Code != Gone {
				t.Fatalf("the match that looked for its rows late restored %d tokens (%v), %v", got.Tokens, got.Reason, err)
			}
			checkRows(t, c.d, &c.p, rows, got.Tokens)
			expect(t, m, c.p, left) // nobody else finds it
		}
		c.shows(t, dir, "while the match is open")
		if err := errors.Join(x.Close(), late.Close()); err != nil {
			t.Fatal(err)
		}
		if err := s.Sync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	c.gone(t, dir, "after Sync")
	c.stays(t, s, left, "after Sync")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c.gone(t, dir, "after Close")
	for _, lost := range [][]string{{}, {indexName}, {bloomName}, {indexName, bloomName}} {
		for _, name := range lost {
			os.Remove(filepath.Join(dir, name))
		}
		s := open(t, dir, options())
		c.stays(t, s, left, fmt.Sprintf("after losing %v", lost))
		crash(s)
		c.gone(t, dir, fmt.Sprintf("after losing %v", lost))
	}
}

// stays checks that the deletion holds and has taken nothing else.
func (c *canary) stays(t testing.TB, s *Store, left int, when string) {
	t.Helper()
	if _, err := s.Ref("secret"); !errors.Is(err, ErrNotFound) {
		t.Fatalf("%s: the ref on the secret: %v", when, err)
	}
	if left == 0 {
		models, err := Collect(s.Models())
		if err != nil || len(models) != 0 {
			t.Fatalf("%s: models %v, %v", when, models, err)
		}
		if n := s.mustStats(t).Blocks; n != 0 {
			t.Fatalf("%s: %d blocks", when, n)
		}
		return
	}
	m := model(t, s, c.d)
	if n, _ := restore(t, m, c.p); n != left {
		t.Fatalf("%s: %d tokens of the secret's prompt are found, expected %d", when, n, left)
	}
	expect(t, m, kv.Prompt{Tokens: concat(tokens(1, c.start), tokens(7, 40))}, c.start+40)
}

// A deletion is one frame: a copy of the files at any moment of it has all or nothing of what it takes, and once a
// deletion is seen it stays.
func TestDeleteInterrupted(t *testing.T) {
	c := newCanary(plain(), "alice")
	s := open(t, t.TempDir(), options())
	m := c.live(t, s, "fresh")
	e := s.eng
	e.ckptMu.Lock() // holds the deletion up between its frame and the destruction
	done := make(chan error, 1)
	go func() { _, err := s.DeleteScope(ctx, "alice"); done <- err }()
	eventually(t, "the frame is written", func() bool {
		n, _, err := m.Probe(ctx, c.p, MatchOptions{})
		return err == nil && n == canaryStart
	})
	dir := copyStore(t, s.Dir())
	e.ckptMu.Unlock()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	c.shows(t, dir, "before the destruction")
	s = open(t, dir, options())
	c.stays(t, s, canaryStart, "after the kill")
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	c.gone(t, dir, "after Sync")
}

// Needles are what the files hold: a store without deletion shows tokens and rows both.
func TestCanaryIsFound(t *testing.T) {
	c := newCanary(plain(), "")
	s := open(t, t.TempDir(), options())
	put(t, model(t, s, c.d), c.p)
	var toks, rows bool
	for _, f := range c.grep(t, s.Dir()) {
		toks = toks || bytes.Contains([]byte(f), []byte("tokens"))
		rows = rows || bytes.Contains([]byte(f), []byte("tensor"))
	}
	if !toks || !rows {
		t.Errorf("tokens found: %t, rows found: %t", toks, rows)
	}
}
