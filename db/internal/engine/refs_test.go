package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/remove"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

// A ref is not acknowledged on a prefix whose state is gone: room is made for the ref, the prefix is evicted meanwhile, and a put of
// a longer prompt brings back its blocks, with a state of its own only.
func TestRefWhoseStateGoesMeanwhile(t *testing.T) {
	d := crashtest.NewDisk(crashtest.NewDirs(t).Next())
	o := putsEvict(4<<20, 64<<10)
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
		for e.Budget.Inside().Take(n, o.Budget-e.Budget.ReserveBytes()) {
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
	e.Budget.GiveUp(rest, 0)
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
	if err := e.Ledger.SetRef(ref, found); !errors.Is(err, engine.ErrRefGone) {
		t.Errorf("a ref on a state that was deleted: %v", err)
	}
	if err := m.SetRef(t.Context(), "ref", p, db.RefOptions{}); !errors.Is(err, db.ErrNotStored) {
		t.Error(err)
	}
}

// A deletion of many frames looks at all refs once, and takes those on each block that goes, those to what was evicted before, and no other.
func TestDeletionLooksAtAllRefsOnce(t *testing.T) {
	defer remove.SetBatches(4, 0)()
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	m, c := storetest.Model(t, s, crashtest.Plain()), storetest.Engine(s).Catalog
	p, other := kv.Tokens(crashtest.Tokens(1, 16*64)...), kv.Tokens(crashtest.Tokens(2, 64)...)
	evicted := kv.Tokens(crashtest.Concat(p.Tokens[:16], crashtest.Tokens(3, 64))...)
	set := func(name string, p kv.Prompt, o db.RefOptions) {
		t.Helper()
		storetest.OK(t, m.SetRef(t.Context(), name, p, o))
	}
	storetest.Put(t, m, evicted)
	set("evicted", evicted, db.RefOptions{})
	storetest.Must(storetest.Engine(s).Inside().EvictBlocks(1 << 20))(t)
	storetest.Put(t, m, p)
	storetest.Put(t, m, other)
	for i := range 64 {
		set(fmt.Sprint("block ", i), p.Prefix(16*(i+1)), db.RefOptions{Pinned: i%8 == 0, Priority: uint8(i % 3)})
		set(fmt.Sprint("other ", i), other, db.RefOptions{})
	}
	before := c.RefWalks()
	did := storetest.Must(m.Delete(t.Context(), p.Prefix(16)))(t)
	if did.Blocks != 64 || did.Refs != 65 || len(c.Refs()) != 64 {
		t.Errorf("%d blocks went and %d refs, %d are left", did.Blocks, did.Refs, len(c.Refs()))
	}
	if n := c.RefWalks() - before; n > 3 { // the worker may look for those whose time is over
		t.Errorf("a deletion of %d blocks looked at all refs %d times", did.Blocks, n)
	}
}

// In Power mode, refs that run out together cost no sync each. A power cut brings them back: no read finds them, the next turn drops them
// again, and nothing stays pinned. A ref that DeleteRef drops stays away.
func TestRefsExpireWithoutSyncs(t *testing.T) {
	const refs, ttl = 100, 500 * time.Millisecond
	dirs := crashtest.NewDirs(t)
	d := crashtest.NewDisk(dirs.Next())
	o := storetest.Options()
	o.Durability = db.Power
	s := storetest.OpenOn(t, d, d.Dir(), o)
	m := storetest.Model(t, s, crashtest.Plain())
	p := kv.Tokens(crashtest.Tokens(1, 64)...)
	storetest.Put(t, m, p)
	for _, name := range []string{"stays", "goes"} {
		storetest.OK(t, m.SetRef(t.Context(), name, p, db.RefOptions{Priority: 3}))
	}
	for i := range refs {
		storetest.OK(t, m.SetRef(t.Context(), fmt.Sprint("short ", i), p, db.RefOptions{TTL: ttl, Pinned: true}))
	}
	storetest.OK(t, s.DeleteRef(t.Context(), "goes"))
	left := func(s *db.Store) int { return len(storetest.Engine(s).Catalog.Refs()) }
	drop := func(s *db.Store) {
		t.Helper()
		storetest.OK(t, storetest.Engine(s).Inside().Turn(t.Context(), false))
		if n := left(s); n != 1 || storetest.Engine(s).Catalog.Pinned() != 0 {
			t.Errorf("%d refs are left", n)
		}
		if class := storetest.Engine(s).Catalog.Class(storetest.Engine(s).Catalog.Named()[0]); class != 3 {
			t.Errorf("class %d", class)
		}
	}
	time.Sleep(ttl)
	var syncs atomic.Int64
	d.Before(func(op crashfs.Op) error {
		if strings.HasPrefix(op.Kind, "sync") {
			syncs.Add(1)
		}
		return nil
	})
	drop(s)
	if n := syncs.Load(); n > 5 {
		t.Errorf("%d syncs for %d refs that ran out together", n, refs)
	}

	image, _, err := d.Cut(crashfs.Loss{All: true}, dirs.Next())
	storetest.OK(t, err)
	storetest.OK(t, crashtest.Reboot(image, image.Dir()))
	reads := o
	reads.ReadOnly = true // where nothing drops them
	s = storetest.OpenOn(t, image, image.Dir(), reads)
	if n := left(s); n != refs+1 {
		t.Errorf("%d refs came back: the test does not see what it is about", n)
	}
	for _, name := range []string{"short 0", "goes"} {
		if _, err := s.Ref(name); !errors.Is(err, db.ErrNotFound) {
			t.Errorf("ref %q: %v", name, err)
		}
	}
	storetest.OK(t, s.Close())
	s = storetest.OpenOn(t, image, image.Dir(), o)
	drop(s)
	storetest.Sound(t, s)
}
