package llamaserver

import (
	"os"
	"path/filepath"
	"testing"
)

// The time that was saved and the rate at which prompts are computed outlive the front: after an end, and after a kill what was written before. What was
// purged is not counted any more.
func TestTotalsOutliveTheFront(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	r := start(t, Options{Dir: dir}, "-c", "8192", "-np", "1")
	if f := r.front.Figures(); f.SavedEver != 0 || !f.EverSince.IsZero() {
		t.Errorf("of a new store: %+v", f)
	}
	ones := []object{story("One dog", 12), story("Two cats", 12)}
	for _, body := range ones {
		r.ask("/completion", body)
		r.saved()
	}
	if f := r.front.Figures(); len(f.Rates) != 1 || f.Rates[0].PerSecond <= 0 || f.EverSince.IsZero() {
		t.Fatalf("after two prompts: %+v", f)
	}
	r.front.ledger.totals.mu.Lock() // restores of so small a model save next to nothing
	for _, x := range r.front.ledger.totals.of {
		x.Saved += 1e9
	}
	r.front.ledger.totals.mu.Unlock()
	for range 3 {
		for _, body := range ones {
			r.ask("/completion", body)
			r.saved()
		}
	}
	r.front.ledger.keep(t.Context()) // what is done each minute
	before := r.front.Figures()
	if before.SavedEver != before.Saved+1e9 {
		t.Errorf("%v were saved, %v ever", before.Saved, before.SavedEver)
	}
	killed := filepath.Join(t.TempDir(), "store")
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil { // what a kill would leave
		t.Fatal(err)
	}
	r.ask("/completion", story("Another", 12))
	r.saved()
	last := r.front.Figures()
	r.stop()
	for _, x := range []struct {
		dir  string
		want interface{ String() string }
		of   int64 // measurements
	}{{dir, last.SavedEver, last.Rates[0].Measurements}, {killed, before.SavedEver, before.Rates[0].Measurements}} {
		again := start(t, Options{Dir: x.dir}, "-c", "8192", "-np", "1")
		f := again.front.Figures()
		if f.SavedEver.String() != x.want.String() || f.Saved != 0 || !f.EverSince.Equal(before.EverSince) || !f.Since.After(before.Since) {
			t.Errorf("%v were saved ever, since %v; expected %v, since %v; %v since this start, at %v", f.SavedEver, f.EverSince, x.want, before.EverSince, f.Saved, f.Since)
		}
		if len(f.Rates) != 1 || f.Rates[0].Measurements != x.of || f.Rates[0].Model != before.Rates[0].Model {
			t.Errorf("the rates are %+v, expected %d measurements", f.Rates, x.of)
		}
		st, err := again.front.Status(t.Context())
		if err != nil || st.SavedEver != f.SavedEver || !st.EverSince.Equal(f.EverSince) || len(st.Rates) != 1 || st.Rates[0] != f.Rates[0] {
			t.Errorf("status says %+v, %v", st, err)
		}
		if _, err := again.front.Purge(t.Context(), Purge{All: true}); err != nil {
			t.Fatal(err)
		}
		if f := again.front.Figures(); f.SavedEver != 0 || !f.EverSince.IsZero() {
			t.Errorf("after a purge %v, since %v", f.SavedEver, f.EverSince)
		}
		again.stop()
	}
}
