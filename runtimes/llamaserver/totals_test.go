package llamaserver_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// The time that was saved and the rate at which prompts are computed outlive the front: after an end, and after a kill what was written before. What was
// purged is not counted any more.
func TestTotalsOutliveTheFront(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	r := rig.Start(t, llamaserver.Options{Dir: dir}, "-c", "8192", "-np", "1")
	if f := r.Front.Figures(); f.SavedEver != 0 || !f.EverSince.IsZero() {
		t.Errorf("of a new store: %+v", f)
	}
	ones := []rig.Object{rig.Story("One dog", 12), rig.Story("Two cats", 12)}
	for _, body := range ones {
		r.Ask("/completion", body)
		r.Saved()
	}
	if f := r.Front.Figures(); len(f.Rates) != 1 || f.Rates[0].PerSecond <= 0 || f.EverSince.IsZero() {
		t.Fatalf("after two prompts: %+v", f)
	}
	r.Front.AddSaved(1e9) // restores of so small a model save next to nothing
	for range 3 {
		for _, body := range ones {
			r.Ask("/completion", body)
			r.Saved()
		}
	}
	r.Front.KeepTotals(t.Context()) // what is done each minute
	before := r.Front.Figures()
	if before.SavedEver != before.Saved+1e9 {
		t.Errorf("%v were saved, %v ever", before.Saved, before.SavedEver)
	}
	killed := filepath.Join(t.TempDir(), "store")
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil { // what a kill would leave
		t.Fatal(err)
	}
	r.Ask("/completion", rig.Story("Another", 12))
	r.Saved()
	last := r.Front.Figures()
	r.Stop()
	for _, x := range []struct {
		dir  string
		want interface{ String() string }
		of   int64 // measurements
	}{{dir, last.SavedEver, last.Rates[0].Measurements}, {killed, before.SavedEver, before.Rates[0].Measurements}} {
		again := rig.Start(t, llamaserver.Options{Dir: x.dir}, "-c", "8192", "-np", "1")
		f := again.Front.Figures()
		if f.SavedEver.String() != x.want.String() || f.Saved != 0 || !f.EverSince.Equal(before.EverSince) || !f.Since.After(before.Since) {
			t.Errorf("%v were saved ever, since %v; expected %v, since %v; %v since this start, at %v", f.SavedEver, f.EverSince, x.want, before.EverSince, f.Saved, f.Since)
		}
		if len(f.Rates) != 1 || f.Rates[0].Measurements != x.of || f.Rates[0].Model != before.Rates[0].Model {
			t.Errorf("the rates are %+v, expected %d measurements", f.Rates, x.of)
		}
		st, err := again.Front.Status(t.Context())
		if err != nil || st.SavedEver != f.SavedEver || !st.EverSince.Equal(f.EverSince) || len(st.Rates) != 1 || st.Rates[0] != f.Rates[0] {
			t.Errorf("status says %+v, %v", st, err)
		}
		if _, err := again.Front.Purge(t.Context(), llamaserver.Purge{All: true}); err != nil {
			t.Fatal(err)
		}
		if f := again.Front.Figures(); f.SavedEver != 0 || !f.EverSince.IsZero() {
			t.Errorf("after a purge %v, since %v", f.SavedEver, f.EverSince)
		}
		again.Stop()
	}
}
