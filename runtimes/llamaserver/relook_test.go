package llamaserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// A server whose rows are others than those of the first one with its identity is not left alone for good: it gets a part of the store for itself,
// and each finds its own again.
func TestOtherRowsAreKeptApart(t *testing.T) {
	model, err := filepath.Abs(stories)
	if err != nil {
		t.Fatal(err)
	}
	r, replace := attached(t, model)
	r.settled()
	body := story("Of whichever server", 8)
	text := map[string]string{"": r.ask("/completion", body).text}
	r.saved()
	other := []string{"--rope-freq-base", "20000"}
	replace(model, other...)
	passed := 0
	r.eventually(func() bool {
		got := r.ask("/completion", body)
		if strings.HasPrefix(got.header, "hit") {
			t.Fatalf("rows of another server are restored: %s", got.header)
		}
		text["other"] = got.text
		passed++
		r.settled()
		return !strings.HasPrefix(got.header, "pass")
	})
	if passed < trial.RestRequests {
		t.Errorf("after %d requests it is already sure", passed)
	}
	if text["other"] == text[""] {
		t.Fatal("the other server says the same")
	}
	r.saved()
	for _, c := range []struct {
		name string
		args []string
	}{{"", nil}, {"other", other}, {"", nil}} {
		replace(model, c.args...)
		r.eventually(func() bool {
			got := r.ask("/completion", body)
			if got.status == 200 && got.text != text[c.name] {
				t.Fatalf("server %q: %q (%s), expected %q", c.name, got.text, got.header, text[c.name])
			}
			return strings.HasPrefix(got.header, "hit")
		})
	}
}

// A model that was refused, since its slots could not be saved, is looked at again.
func TestRefusedModelIsLookedAtAgain(t *testing.T) {
	model, err := filepath.Abs(stories)
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
	base := plain(t, "-m", model, "-c", "512", "-np", "1", "--slot-save-path", slots)
	if err := os.Remove(slots); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, log: &logged{}}
	if r.front, err = New(must(t, base), &Arguments{}, Options{Dir: filepath.Join(t.TempDir(), "store"), Attach: base, SlotDir: slots}); err != nil {
		t.Fatal(err)
	}
	defer r.front.Close(context.Background())
	r.serve()
	r.eventually(func() bool { _, err := r.front.servedFor("").ready(); return errors.Is(err, request.PassSlots) })
	if got := r.ask("/completion", story("Away", 6)); got.header != "pass; reason=slots_not_saved" {
		t.Errorf("while the folder is away: %s", got.header)
	}
	folder()
	for i := 0; !strings.HasPrefix(r.ask("/completion", story("Back", 6)).header, "miss"); i++ {
		if i > 5*trial.RestRequests {
			t.Fatal("it is never looked at again")
		}
	}
}

// A store that is suspended, as it does itself when its index is damaged and cannot be made anew just then, goes on as soon as it can.
func TestSuspendedStoreGoesOn(t *testing.T) {
	r := start(t, Options{}, "-c", "2048", "-np", "1")
	r.ask("/completion", story("Suspended", 8))
	r.saved()
	if err := r.front.Store().Suspend(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.killServer()
	if got := r.ask("/completion", story("Suspended", 8)); got.status != 200 {
		t.Errorf("while it is suspended: %+v", got)
	}
	r.eventually(func() bool {
		r.front.eraseSlots(context.Background())
		r.front.forgetSlots()
		return strings.HasPrefix(r.ask("/completion", story("Suspended", 8)).header, "hit")
	})
}
