package db

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// A move that comes when the model is retired already begins no segment for it: what is put for another model of the same
// fingerprint would go there.
func TestMoveOfARetiredModel(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	d, other := twinDescriptors(0)
	m := model(t, s, d)
	p := kv.Tokens(tokens(1, 48)...)
	put(t, m, p)
	var moves []index.Entry
	v := s.eng.view()
	err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool { moves = append(moves, x); return true })
	v.Release()
	if err != nil {
		t.Fatal(err)
	}
	reader, err := m.Match(ctx, p, MatchOptions{}) // keeps the segment
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Retire(ctx, m.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	if moved, err := s.eng.move(ctx, moves[0]); moved || err != nil {
		t.Fatal(moved, err)
	}
	reader.Close()
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
