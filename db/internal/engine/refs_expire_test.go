package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

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
