package db

import (
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// Of a header that is longer than a page a power cut may take the first one only. What is left of it is nothing to destroy: the
// header that the segment gets again stays.
func TestPowerCutTakesFirstPageOfLongHeader(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	d := plain()
	d.Name = strings.Repeat("a long name ", 1000)
	m := model(t, s, d)
	p := kv.Tokens(tokens(1, 48)...)
	put(t, m, p)
	image := copyStore(t, dir)
	loseHeader(t, image)
	for _, what := range []string{"once", "again"} {
		s = open(t, image, options())
		expect(t, model(t, s, d), p, 48)
		if err := s.Sync(ctx); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if rep, err := Verify(ctx, image, VerifyOptions{}); err != nil || len(rep.Damage) > 0 {
			t.Errorf("opened %s: %v, %v", what, err, rep.Damage)
		}
	}
}
