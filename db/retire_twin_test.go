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
	s := open(t, t.TempDir(), options())
	d, other := twinDescriptors(0)
	m := model(t, s, d)
	p := kv.Tokens(tokens(1, 48)...)
	put(t, m, p)
	if err := s.Retire(ctx, m.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	put(t, model(t, s, other), p)
	onlyTheTwin(t, s, d, other, p)
}

// onlyTheTwin loses log and index of a store in which other took the place of d, and looks for p.
func onlyTheTwin(t *testing.T, s *Store, d, other kv.Descriptor, p kv.Prompt) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{walDir, indexName} {
		if err := os.RemoveAll(filepath.Join(s.Dir(), name)); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, s.Dir(), options())
	if _, err := s.Model(ctx, d); !errors.Is(err, kv.ErrDescriptor) {
		t.Errorf("the retired model is back, with the rows of another: %v", err)
	}
	x, err := s.Model(ctx, other)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, x, p, 48)
}
