package db

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/kv"
)

// stored puts n tokens that depend on seed, with rows of zeros, and matches it.
func stored(t *testing.T, s *Store, seed, n int) (*Match, kv.Rows) {
	t.Helper()
	d := crashtest.Plain()
	m, err := s.Register(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	p := kv.Tokens(crashtest.Tokens(seed, n)...)
	rows := make(kv.Rows, len(d.Tensors))
	for i, tensor := range d.Tensors {
		rows[i] = kv.Packed(0, n, make([]byte, n*tensor.RowBytes()))
	}
	if _, err := m.Put(t.Context(), p, rows, PutOptions{}); err != nil {
		t.Fatal(err)
	}
	x, err := m.Match(t.Context(), p, MatchOptions{})
	if err != nil || x.Tokens() != n {
		t.Fatal(x.Tokens(), err)
	}
	return x, rows
}

// A match whose lookup failed after a Resume is looked up again, and its Close lets the store close.
func TestMatchAfterAFailedLookup(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir(), Options{MinFree: -1, CheckpointInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	x, rows := stored(t, s, 1, 64)
	lose := func() { // as a lookup does that fails
		x.mu.Lock()
		defer x.mu.Unlock()
		x.held.Drop(s.eng.Pins)
	}
	s.gen++ // as a Resume does that found the store changed
	lose()
	if n, err := x.Restore(t.Context(), rows); err != nil || n.Tokens != 64 {
		t.Errorf("%d tokens are restored once the lookup works again: %v", n.Tokens, err)
	}
	lose()
	if err := errors.Join(x.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}

// A record of another block's place is damage to whoever looks at it, with file and offset.
func TestViewOfAnotherRecordIsDamage(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir(), Options{MinFree: -1, CheckpointInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	x, _ := stored(t, s, 1, 16)
	y, _ := stored(t, s, 2, 16)
	mine, other := &x.held.Found.Hits[0].Groups[0].Loc, y.held.Found.Hits[0].Groups[0].Loc
	*mine = other
	var bad *CorruptError
	err = x.View(t.Context(), func(StoredPlane) error { return nil })
	if !errors.As(err, &bad) || bad.File == "" || bad.Offset != other.Offset {
		t.Errorf("view: %v", err)
	}
	if err := errors.Join(x.Close(), y.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}
