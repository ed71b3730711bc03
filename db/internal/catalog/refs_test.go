package catalog_test

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A ref that is set anew, on another block or with another priority, takes its priority along.
func TestRefTakesItsPriorityAlong(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p, q := kv.Tokens(crashtest.Tokens(1, 32)...), kv.Tokens(crashtest.Tokens(2, 32)...)
	storetest.Put(t, m, p)
	storetest.Put(t, m, q)
	set := func(name string, p kv.Prompt, priority uint8) {
		t.Helper()
		storetest.OK(t, m.SetRef(t.Context(), name, p, db.RefOptions{Priority: priority}))
	}
	classes := func(ofP, ofQ uint64) {
		t.Helper()
		image := storetest.Copy(t, s.Dir()) // where the index is lost, the refs alone say it
		storetest.Remove(t, image, storetest.IndexFile)
		for _, s := range []*db.Store{s, storetest.Open(t, image, storetest.Options())} {
			for _, x := range []struct {
				p    kv.Prompt
				want uint64
			}{{p, ofP}, {q, ofQ}} {
				if got := storetest.Record(t, s, m, x.p, 1, 0).Rank >> catalog.RankBits; got != x.want {
					t.Errorf("class %d, expected %d", got, x.want)
				}
			}
		}
	}
	set("a", p, 2)
	classes(2, 0)
	set("a", q, 0)
	classes(0, 0)
	set("a", q, 3)
	set("b", q, 1)
	classes(0, 3)
	set("a", p, 3)
	classes(3, 1)
}

// A ref of an older build does not say what it was: it goes with the next deletion of its model once nothing of it is stored.
func TestDeletionsTakeRefsThatDoNotSayWhatTheyAre(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p, kept := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}, kv.Prompt{Tokens: crashtest.Tokens(2, 64)}
	for name, p := range map[string]kv.Prompt{"gone": p, "kept": kept} {
		storetest.Put(t, m, p)
		storetest.OK(t, m.SetRef(t.Context(), name, p, db.RefOptions{Pinned: name == "kept"}))
	}
	refs := storetest.Must(db.Collect(s.Refs()))(t)
	storetest.Crash(s)
	for _, r := range refs {
		old := oplog.Ref{Name: r.Name, Model: r.Model, Block: r.Block, Tokens: r.Tokens, Pinned: r.Pinned}
		storetest.AppendToLog(t, s.Dir(), old.Kind(), oplog.Encode(old))
	}
	s = storetest.Open(t, s.Dir(), storetest.Options())
	m = storetest.Model(t, s, crashtest.Plain())
	storetest.Must(s.Shrink(t.Context(), 1))(t)
	if d, err := m.Delete(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(3, 64)}); err != nil || d.Refs != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := s.Ref("gone"); !errors.Is(err, db.ErrNotFound) {
		t.Error(err)
	}
	if _, err := s.Ref("kept"); err != nil {
		t.Error(err)
	}
}
