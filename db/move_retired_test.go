package db

import (
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// A move that comes when the model is retired already begins no segment for it.
func TestMoveOfARetiredModel(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
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
	m = model(t, s, plain())
	expect(t, m, p, 0)
	put(t, m, p)
	expect(t, m, p, 48)
}
