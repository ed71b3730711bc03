package db

import (
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// A move that comes when the model is retired already begins no segment for it: what is put for another model of the same
// fingerprint would go there.
func TestMoveOfARetiredModel(t *testing.T) {
	s := open(t, t.TempDir(), options())
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
	onlyTheTwin(t, s, d, other, p)
}
