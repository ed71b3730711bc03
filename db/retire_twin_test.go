package db

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// The segments of a model name it, also where it has the fingerprint of one that was retired: with log and index lost, nobody takes
// its rows for those of the other.
func TestSegmentsNameTheTwinOfARetiredModel(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	d, other := twinDescriptors(0)
	m := model(t, s, d)
	p := kv.Tokens(tokens(1, 48)...)
	put(t, m, p)
	if err := s.Retire(ctx, m.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	put(t, model(t, s, other), p)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{walDir, indexName} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, dir, options())
	if _, err := s.Model(ctx, d); !errors.Is(err, kv.ErrDescriptor) {
		t.Errorf("the retired model is back, with the rows of another: %v", err)
	}
	x, err := s.Model(ctx, other)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, x, p, 48)
}
