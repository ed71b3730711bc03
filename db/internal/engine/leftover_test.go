package engine_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// A put whose window rows lie before those that are stored leaves the record as it is, and no lease behind.
func TestDisjointWindowRowsLeaveNoLease(t *testing.T) {
	d := crashtest.Windowed(40)
	s, m := storetest.Fresh(t, storetest.Options(), d)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 16)}
	for _, r := range [][2]int{{12, 16}, {2, 8}} {
		rows := storetest.Filled(d, &p, 0, 16)
		w := storetest.Filled(d, &p, r[0], r[1])
		for i := range d.Tensors {
			if d.Tensors[i].Group == 1 {
				rows[i] = w[i]
			}
		}
		storetest.Must(m.Put(t.Context(), p, rows, db.PutOptions{}))(t)
	}
	storetest.Must(m.Delete(t.Context(), p))(t)
	if err := s.Sync(t.Context()); err != nil {
		t.Errorf("something still holds the deleted records: %v", err)
	}
	if n, b := storetest.Engine(s).Segments.Pending(); n != 0 {
		t.Errorf("%d records, %d bytes, wait for a lease", n, b)
	}
}

// What an older head of the log gave up and the newest one does not is alive: a power cut had taken what stood in its place,
// and a recovery, which a crash ended before it could remove the older head, has kept it.
func TestNewestHeadDecidesWhatIsDead(t *testing.T) {
	dir := t.TempDir()
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	s := storetest.Open(t, dir, storetest.Options())
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
	storetest.OK(t, s.Checkpoint(t.Context()))
	e := storetest.Engine(s)
	v := e.View()
	storetest.OK(t, v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		e.Catalog.BuryAt(x.Loc)
		return true
	}))
	v.Release()
	for range 2 {
		head := e.Inside().Head(nil)
		if _, _, err := e.Inside().Wal().Rotate(func(uint64) []byte { return head }); err != nil {
			t.Fatal(err)
		}
		e.Catalog.Destroyed(e.Catalog.Tombstones())
	}
	storetest.Crash(s)
	storetest.OK(t, os.Remove(filepath.Join(dir, storetest.IndexFile)))
	s = storetest.Open(t, dir, storetest.Options())
	storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 64)
}
