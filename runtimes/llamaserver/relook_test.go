package llamaserver_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// A server whose rows are others than those of the first one with its identity is not left alone for good: it gets a part of the store for itself,
// and each finds its own again.
func TestOtherRowsAreKeptApart(t *testing.T) {
	model, err := filepath.Abs(rig.Stories)
	if err != nil {
		t.Fatal(err)
	}
	r, replace := attached(t, model)
	r.Settled()
	body := rig.Story("Of whichever server", 8)
	text := map[string]string{"": r.Ask("/completion", body).Text}
	r.Saved()
	other := []string{"--rope-freq-base", "20000"}
	replace(model, other...)
	passed := 0
	r.Eventually(func() bool {
		got := r.Ask("/completion", body)
		if strings.HasPrefix(got.Header, "hit") {
			t.Fatalf("rows of another server are restored: %s", got.Header)
		}
		text["other"] = got.Text
		passed++
		r.Settled()
		return !strings.HasPrefix(got.Header, "pass")
	})
	if passed < trial.RestRequests {
		t.Errorf("after %d requests it is already sure", passed)
	}
	if text["other"] == text[""] {
		t.Fatal("the other server says the same")
	}
	r.Saved()
	for _, c := range []struct {
		name string
		args []string
	}{{"", nil}, {"other", other}, {"", nil}} {
		replace(model, c.args...)
		r.Eventually(func() bool {
			got := r.Ask("/completion", body)
			if got.Status == 200 && got.Text != text[c.name] {
				t.Fatalf("server %q: %q (%s), expected %q", c.name, got.Text, got.Header, text[c.name])
			}
			return strings.HasPrefix(got.Header, "hit")
		})
	}
}

// A model that was refused, since its slots could not be saved, is looked at again.
func TestRefusedModelIsLookedAtAgain(t *testing.T) {
	model, err := filepath.Abs(rig.Stories)
	if err != nil {
		t.Fatal(err)
	}
	slots := filepath.Join(t.TempDir(), "slots")
	folder := func() {
		t.Helper()
		if err := os.Mkdir(slots, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	folder()
	base := rig.Plain(t, "-m", model, "-c", "512", "-np", "1", "--slot-save-path", slots)
	if err := os.Remove(slots); err != nil {
		t.Fatal(err)
	}
	r := &rig.Rig{T: t, Log: &rig.Log{}}
	if r.Front, err = llamaserver.New(rig.MustParse(t, base), &llamaserver.Arguments{}, llamaserver.Options{Dir: filepath.Join(t.TempDir(), "store"), Attach: base, SlotDir: slots}); err != nil {
		t.Fatal(err)
	}
	defer r.Front.Close(context.Background())
	r.Serve()
	r.Eventually(func() bool { return strings.HasPrefix(r.Model().Refused, string(request.PassSlots)) })
	if got := r.Ask("/completion", rig.Story("Away", 6)); got.Header != "pass; reason=slots_not_saved" {
		t.Errorf("while the folder is away: %s", got.Header)
	}
	folder()
	for i := 0; !strings.HasPrefix(r.Ask("/completion", rig.Story("Back", 6)).Header, "miss"); i++ {
		if i > 5*trial.RestRequests {
			t.Fatal("it is never looked at again")
		}
	}
}

// A store that is suspended, as it does itself when its index is damaged and cannot be made anew just then, goes on as soon as it can.
func TestSuspendedStoreGoesOn(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, "-c", "2048", "-np", "1")
	r.Ask("/completion", rig.Story("Suspended", 8))
	r.Saved()
	if err := r.Front.Store().Suspend(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.KillServer()
	if got := r.Ask("/completion", rig.Story("Suspended", 8)); got.Status != 200 {
		t.Errorf("while it is suspended: %+v", got)
	}
	r.Eventually(func() bool {
		r.Front.EraseSlots(context.Background())
		return strings.HasPrefix(r.Ask("/completion", rig.Story("Suspended", 8)).Header, "hit")
	})
}
