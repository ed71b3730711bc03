package db

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A store that has no LOCK, a copy, say, can be opened for reading, suspended and resumed, and gets none by that.
func TestReadOnlyWithoutLock(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	p := kv.Tokens(tokens(1, 48)...)
	put(t, model(t, s, plain()), p)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(dir, lockName)
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	o := options()
	o.ReadOnly = true
	other := open(t, dir, o) // several may read it
	s = open(t, dir, o)
	expect(t, model(t, other, plain()), p, 48)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	m := model(t, s, plain())
	for range 2 {
		if err := s.Suspend(ctx); err != nil {
			t.Fatal(err)
		}
		if err := s.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		expect(t, m, p, 48)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(lock); err == nil {
		t.Error("a store that is only read has got a LOCK")
	}
}
