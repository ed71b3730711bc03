package catalog_test

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

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
