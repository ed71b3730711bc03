package engine_test

import (
	"fmt"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A deletion of many frames looks at all refs once, and takes those on each block that goes, those to what was evicted before, and no other.
func TestDeletionLooksAtAllRefsOnce(t *testing.T) {
	defer engine.SetRemoveBatch(4)()
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
