package filter_test

import (
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/filter"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

func TestMain(m *testing.M) { memdir.Main(m) }

// beside returns a filter of its own of a store's ledger, which counts its wakes. What the store does itself does not reach it.
func beside(t *testing.T, s *db.Store, fpr float64) (f *filter.Filter, wakes *atomic.Int64, rebuild func()) {
	t.Helper()
	e := storetest.Engine(s)
	wakes = new(atomic.Int64)
	dir := t.TempDir()
	f = filter.New(filter.Options{
		FS: vfs.OS, Dir: dir, Path: filepath.Join(dir, "bloom"), UUID: e.Format.UUID, FPR: fpr, Hasher: e.Hasher, Logger: slog.New(slog.DiscardHandler),
		Wake: func() { wakes.Add(1) },
	}, e.Ledger, filter.NewPending(), filter.Plan{})
	rebuild = func() {
		t.Helper()
		var pace read.Pace
		storetest.OK(t, f.Rebuild(t.Context(), &pace, func() bool { return true }))
		if f.Stale() {
			t.Fatal("the filter is stale as soon as it is built")
		}
	}
	rebuild()
	return f, wakes, rebuild
}

// more adds keys of which nothing is stored until the filter says so.
func more(f *filter.Filter, enough func() bool) {
	random := rand.New(rand.NewPCG(1, 2))
	for !enough() {
		var k kv.Key
		for i := range k {
			k[i] = byte(random.Uint32())
		}
		f.Add(k)
	}
}

// A filter is stale, and the worker is woken, after more than 8,192 removed blocks.
func TestStaleAfterRemovals(t *testing.T) {
	s, _ := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	f, wakes, rebuild := beside(t, s, 0.001)
	for range 2 { // a rebuild begins to count anew
		before := wakes.Load()
		f.Removed(8000)
		f.Removed(192)
		if f.Stale() || wakes.Load() != before {
			t.Fatalf("after 8,192 removals: stale %v, woken %d times", f.Stale(), wakes.Load()-before)
		}
		f.Removed(1)
		if !f.Stale() {
			t.Error("8,193 blocks were removed, and the filter is not stale")
		}
		if wakes.Load() != before+1 {
			t.Errorf("the worker was woken %d times by the 8,193rd removal", wakes.Load()-before)
		}
		rebuild()
	}
}

// A filter is stale when 80 % of its bits are set. At one probe and a rate of one half the estimated rate alone would never say so.
func TestStaleAtFourFifths(t *testing.T) {
	s, _ := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	f, _, rebuild := beside(t, s, 0.5)
	more(f, func() bool { return f.Loaded().Fill() >= 0.79 })
	if f.Stale() {
		t.Fatalf("stale at a fill of %.3f", f.Loaded().Fill())
	}
	more(f, func() bool { return f.Loaded().Fill() >= 0.8 })
	if !f.Stale() {
		t.Errorf("the filter is not stale at a fill of %.3f, at an estimated rate of %.3f", f.Loaded().Fill(), f.Loaded().EstimatedFPR())
	}
	rebuild()
	if fill := f.Loaded().Fill(); fill > 0.01 {
		t.Errorf("a filter of nothing has a fill of %.3f", fill)
	}
}

// A filter is stale when its estimated rate is twice what it was made for, long before 80 % of its bits are set.
func TestStaleAtTwiceTheRate(t *testing.T) {
	s, _ := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	f, _, rebuild := beside(t, s, 0.001)
	more(f, func() bool { return f.Loaded().EstimatedFPR() >= 0.0019 })
	if f.Stale() {
		t.Fatalf("stale at a rate of %.5f", f.Loaded().EstimatedFPR())
	}
	more(f, func() bool { return f.Loaded().EstimatedFPR() > 0.002 })
	if !f.Stale() {
		t.Errorf("the filter is not stale at an estimated rate of %.5f, a fill of %.3f", f.Loaded().EstimatedFPR(), f.Loaded().Fill())
	}
	rebuild()
}
