package engine_test

import (
	"os"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// Records of a store whose folder is away for a moment, with its medium perhaps, are not damaged: once it is back, all is there.
func TestFolderIsAwayForAMoment(t *testing.T) {
	dir := t.TempDir() + "/store"
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	p, q := kv.Tokens(crashtest.Tokens(1, 64)...), kv.Tokens(crashtest.Tokens(2, 64)...)
	storetest.Put(t, m, p)
	s = storetest.Reopened(t, s, storetest.Options())
	m = storetest.Model(t, s, crashtest.Plain())
	storetest.Put(t, m, q) // the log is open, and a segment, but not the one of p
	storetest.OK(t, os.Rename(dir, dir+".away"))
	x := storetest.Match(t, m, p)
	if got, err := x.Restore(t.Context(), storetest.Empty(m.Descriptor(), 64)); err != nil || got.Tokens != 0 || got.Reason.Code != db.Damaged {
		t.Errorf("%+v, %v: nothing is tested", got, err)
	}
	storetest.OK(t, x.Close())
	storetest.OK(t, os.Rename(dir+".away", dir))
	storetest.Expect(t, m, p, 64)
	storetest.OK(t, s.Close())
	s = storetest.Open(t, dir, storetest.Options())
	storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 64)
	storetest.Sound(t, s)
}

// Whoever is told that there is no space is told what keeps it.
func TestNoSpaceSaysWhatKeepsIt(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 3<<20, 256<<10
	for _, by := range []string{"pinned refs keep", "open matches, and puts under way, keep"} {
		_, m := storetest.Fresh(t, o, crashtest.Plain())
		var err error
		for n := 0; err == nil; n++ {
			if err = putNth(t, m, n); err != nil {
				break
			}
			p := kv.Prompt{Tokens: crashtest.Tokens(n, 320)}
			if strings.HasPrefix(by, "pinned") {
				err = m.SetRef(t.Context(), string(rune('a'+n)), p.Prefix(320), db.RefOptions{Pinned: true})
			} else if x, merr := m.Match(t.Context(), p, db.MatchOptions{}); merr == nil {
				defer x.Close()
			}
		}
		if !strings.Contains(err.Error(), by) {
			t.Errorf("no word of %q: %v", by, err)
		}
	}
}
