package engine_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

// A ref is not acknowledged on a prefix whose state is gone: room is made for the ref, the prefix is evicted meanwhile, and a put of
// a longer prompt brings back its blocks, with a state of its own only.
func TestRefWhoseStateGoesMeanwhile(t *testing.T) {
	d := crashtest.NewDisk(crashtest.NewDirs(t).Next())
	o := storetest.Options()
	o.Budget, o.SegmentBytes, o.HighWater, o.LowWater = 4<<20, 64<<10, 1, 1
	s := storetest.OpenOn(t, d, d.Dir(), o)
	m, e := storetest.Model(t, s, crashtest.Opaque()), storetest.Engine(s)
	for i := range 20 {
		storetest.Put(t, m, kv.Tokens(crashtest.Tokens(10+i, 64)...))
	}
	p := kv.Tokens(crashtest.Tokens(1, 64)...)
	longer := kv.Tokens(crashtest.Concat(p.Tokens, crashtest.Tokens(2, 30))...)
	storetest.Put(t, m, p)

	rest := int64(0) // all the room that is left
	for n := o.Budget; n >= 1<<10; n /= 2 {
		for e.Inside().TakeSpace(n, o.Budget-e.Inside().ReserveBytes()) {
			rest += n
		}
	}
	destroying, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	d.Before(func(op crashfs.Op) error {
		if op.Kind == "punch" || op.Kind == "remove" {
			once.Do(func() {
				close(destroying)
				<-goOn
			})
		}
		return nil
	})
	set := make(chan error)
	go func() {
		set <- m.SetRef(t.Context(), "ref", p, db.RefOptions{Pinned: true, Meta: make([]byte, db.MaxRefMeta)})
	}()
	<-destroying // others go for it
	e.GiveUp(rest, 0)
	if n, err := e.Inside().EvictBlocks(1 << 20); err != nil || n == 0 {
		t.Error(n, err)
	}
	storetest.Put(t, m, longer)
	close(goOn)
	err := <-set
	if n, why, perr := m.Probe(t.Context(), p, db.MatchOptions{}); err == nil && n < 64 || perr != nil {
		t.Errorf("a ref was set on 64 tokens of which %d are stored (%v), %v", n, why, perr)
	}
	if err != nil && !errors.Is(err, db.ErrNotStored) {
		t.Error(err)
	}
}

// Nor where a deletion took it.
func TestRefWhosePrefixIsPutAnew(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	m, e := storetest.Model(t, s, crashtest.Opaque()), storetest.Engine(s)
	p := kv.Tokens(crashtest.Tokens(1, 64)...)
	storetest.Put(t, m, p)
	found := e.Search.Lookup(engine.Searched(e.Catalog.Model(m.Fingerprint())), &p, len(p.Tokens), false)
	storetest.OK(t, found.Find())
	rests := found.AppendRests(nil)
	storetest.Must(m.Delete(t.Context(), p.Prefix(50)))(t)
	storetest.Put(t, m, kv.Tokens(crashtest.Concat(p.Tokens, crashtest.Tokens(2, 30))...))
	ref := oplog.Ref{Name: "ref", Model: m.Fingerprint(), Block: rests[0], Tokens: 64}
	if err := e.LogRef(ref, found); !errors.Is(err, engine.ErrRefGone) {
		t.Errorf("a ref on a state that was deleted: %v", err)
	}
	if err := m.SetRef(t.Context(), "ref", p, db.RefOptions{}); !errors.Is(err, db.ErrNotStored) {
		t.Error(err)
	}
}
