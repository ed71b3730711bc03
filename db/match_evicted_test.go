package db

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// openHook runs something before a segment is opened.
type openHook struct {
	vfs.FS
	before atomic.Pointer[func()]
}

func (h *openHook) Open(name string, readOnly bool) (vfs.File, error) {
	if strings.HasSuffix(name, ".seg") {
		if f := h.before.Swap(nil); f != nil {
			(*f)()
		}
	}
	return h.FS.Open(name, readOnly)
}

// A block that is evicted after a match found it, and before the match rests on it, is none that the match rests on: what it
// promises cannot be evicted.
func TestMatchBesideAnEviction(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	p := kv.Prompt{Tokens: tokens(1, 48)}
	put(t, model(t, s, plain()), p)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	fs := &openHook{FS: vfs.OS}
	o := options()
	o.fs = fs
	s = open(t, dir, o)
	m := model(t, s, plain())
	met := false
	evict := func() { // the match compares the tokens of the last block
		met = true
		if n, err := s.eng.Inside().EvictBlocks(1); err != nil || n != 1 {
			t.Error(n, err)
		}
	}
	fs.before.Store(&evict)
	q := p.Prefix(40)
	x, err := m.Match(ctx, q, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if !met {
		t.Fatal("nothing was evicted meanwhile")
	}
	if _, err := s.eng.Inside().EvictBlocks(3); err != nil {
		t.Fatal(err)
	}
	rows := empty(plain(), 40)
	promised := x.Tokens()
	got, err := x.Restore(ctx, rows)
	if err != nil || got.Tokens != promised || promised < 32 {
		t.Fatalf("a match of %d tokens gives %d (%v, %v)", promised, got.Tokens, got.Reason, err)
	}
	checkRows(t, plain(), &q, rows, got.Tokens)
}

// A state that is given up after a match found it, and before the match rests on it, is none that the match promises.
func TestMatchBesideAStateThatGoes(t *testing.T) {
	for _, d := range []kv.Descriptor{hybrid(), opaque()} {
		dir := t.TempDir()
		s := open(t, dir, options())
		p := kv.Tokens(tokens(1, 64)...)
		for _, n := range []int{20, 32, 45, 64} {
			putState(t, model(t, s, d), p.Prefix(n), 0)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		fs := &openHook{FS: vfs.OS}
		o := options()
		o.fs = fs
		s = open(t, dir, o)
		m := model(t, s, d)
		met := false
		thin := func() { // the match compares the tokens of the last block
			met = true
			if err := s.eng.Inside().ThinStates(m.ms, &p, 2); err != nil {
				t.Error(err)
			}
		}
		fs.before.Store(&thin)
		q := p.Prefix(40)
		x, err := m.Match(ctx, q, MatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		if !met {
			t.Fatal("no state went meanwhile")
		}
		promised := x.Tokens()
		rows := empty(d, len(q.Tokens))
		got, err := x.Restore(ctx, rows)
		if err != nil || got.Tokens != promised || promised != 20 {
			t.Errorf("%s: a match of %d tokens gives %d (%v, %v), expected 20", d.Name, promised, got.Tokens, got.Reason, err)
		}
		checkRows(t, d, &q, rows, got.Tokens)
	}
}
