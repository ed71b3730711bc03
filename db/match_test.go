package db

import (
	"testing"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/kv"
)

// A match whose lookup failed after a Resume is looked up again, and its Close lets the store close.
func TestMatchAfterAFailedLookup(t *testing.T) {
	ctx := t.Context()
	s, err := Open(ctx, t.TempDir(), Options{MinFree: -1, CheckpointInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	d := crashtest.Plain()
	m, err := s.Register(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	p := kv.Tokens(crashtest.Tokens(1, 64)...)
	rows := make(kv.Rows, len(d.Tensors))
	for i, tensor := range d.Tensors {
		rows[i] = kv.Packed(0, 64, make([]byte, 64*tensor.RowBytes()))
	}
	if _, err := m.Put(ctx, p, rows, PutOptions{}); err != nil {
		t.Fatal(err)
	}
	x, err := m.Match(ctx, p, MatchOptions{})
	if err != nil || x.Tokens() != 64 {
		t.Fatal(x.Tokens(), err)
	}
	lose := func() { // as a lookup does that fails
		x.mu.Lock()
		defer x.mu.Unlock()
		x.held.Drop(s.eng.Pins)
	}
	s.gen++ // as a Resume does that found the store changed
	lose()
	if n, err := x.Restore(ctx, rows); err != nil || n.Tokens != 64 {
		t.Errorf("%d tokens are restored once the lookup works again: %v", n.Tokens, err)
	}
	lose()
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
