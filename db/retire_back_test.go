package db

import (
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A model that comes back right after it was retired must not write to a file that is about to be unlinked.
func TestModelComesBackWhileItIsRetired(t *testing.T) {
	s := open(t, t.TempDir(), options())
	m := model(t, s, plain())
	put(t, m, kv.Prompt{Tokens: tokens(1, 64)})
	if _, err := s.eng.retire(m.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	m = model(t, s, plain()) // before Retire gets to destroy anything
	p := kv.Prompt{Tokens: tokens(2, 64)}
	put(t, m, p)
	if err := s.eng.reclaim(ctx); err != nil {
		t.Fatal(err)
	}
	expect(t, m, p, 64)
}
