package db

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/kv"
)

// A ref of an older build does not say what it was: it goes with the next deletion of its model once nothing of it is stored.
func TestDeletionsTakeRefsThatDoNotSayWhatTheyAre(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	p, kept := kv.Prompt{Tokens: tokens(1, 64)}, kv.Prompt{Tokens: tokens(2, 64)}
	for name, p := range map[string]kv.Prompt{"gone": p, "kept": kept} {
		put(t, m, p)
		if err := m.SetRef(ctx, name, p, RefOptions{Pinned: name == "kept"}); err != nil {
			t.Fatal(err)
		}
		r, _ := s.eng.Catalog.Ref(name)
		r.Trail = nil
		s.eng.Catalog.Apply(r, catalog.Place{})
	}
	if _, err := s.Shrink(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if d, err := m.Delete(ctx, kv.Prompt{Tokens: tokens(3, 64)}); err != nil || d.Refs != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := s.Ref("gone"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, err := s.Ref("kept"); err != nil {
		t.Error(err)
	}
}
