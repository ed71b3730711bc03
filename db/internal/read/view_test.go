package read_test

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A View of a prefix that was deleted after the match, but for the last block, whose place the match knows, does not pass over
// what is gone: nobody would miss it.
func TestViewNamesWhatIsGone(t *testing.T) {
	_, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	storetest.Put(t, m, p)
	x, err := m.Match(t.Context(), p, db.MatchOptions{})
	storetest.OK(t, err)
	defer x.Close()
	storetest.Must(m.Delete(t.Context(), p.Prefix(16)))(t)
	next := 0
	err = x.View(t.Context(), func(p db.StoredPlane) error {
		if p.Tensor == 0 {
			if p.First != next {
				t.Errorf("rows from %d on, expected %d", p.First, next)
			}
			next = p.First + p.Rows
		}
		return nil
	})
	if err == nil && next != x.Tokens() {
		t.Errorf("no error, and rows up to %d of %d tokens", next, x.Tokens())
	}
	if err != nil && (!errors.Is(err, prefix.ErrGone) || !errors.Is(err, db.ErrNotStored)) {
		t.Errorf("view: %v", err)
	}
}
