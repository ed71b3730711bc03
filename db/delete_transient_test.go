package db

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// likeToken is another token than the one at a prompt's position i that has the same hash in the index.
func likeToken(s *Store, p kv.Prompt, i int) kv.Token {
	q := kv.Tokens(append([]kv.Token(nil), p.Tokens...)...)
	want := s.eng.hasher.AppendTokenHashes(nil, &p, i, i+1)
	for {
		q.Tokens[i]++
		if bytes.Equal(s.eng.hasher.AppendTokenHashes(nil, &q, i, i+1), want) {
			return q.Tokens[i]
		}
	}
}

// A deletion that cannot read a block, for want of file handles, does not take it for its own prompt's: the index knows two bytes
// of a token, which many have.
func TestDeleteForWantOfFilesTakesNoOthers(t *testing.T) {
	var short atomic.Bool
	o := options()
	o.fs = noFilesFS{vfs.OS, &short}
	dir := t.TempDir()
	s := open(t, dir, o)
	m := model(t, s, plain())
	p := kv.Tokens(tokens(1, 17)...)
	q := kv.Tokens(concat(p.Tokens[:16], []kv.Token{likeToken(s, p, 16)})...)
	put(t, m, p)
	put(t, m, q)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, o)
	m = model(t, s, plain())
	put(t, m, kv.Tokens(tokens(2, 64)...)) // so that there is a segment and a log to write to
	short.Store(true)
	_, err := m.Delete(ctx, p)
	short.Store(false)
	expect(t, m, q, 17)
	mayFail(t, err)
	if err != nil {
		if got, err := m.Delete(ctx, p); err != nil || got.Blocks != 1 {
			t.Fatalf("%+v deleted (%v)", got, err)
		}
	}
	expect(t, m, p, 16)
	expect(t, m, q, 17)
}
