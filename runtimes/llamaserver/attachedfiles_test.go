package llamaserver_test

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// A server of somebody else whose file was replaced before the front came has another one than lies there.
func TestAttachedServerHasAnotherFile(t *testing.T) {
	for name, replace := range rig.Replacements {
		for _, how := range []string{"mmap", "none"} {
			if name == "written over" && how == "mmap" {
				continue // what is mapped is what was written
			}
			t.Run(name+" "+how, func(t *testing.T) {
				model, other := rig.TwoModels(t)
				time.Sleep(20 * time.Millisecond) // the system's clock for files has ticks
				r, again := attachedTo(t, model, func() { time.Sleep(20 * time.Millisecond); replace(t, model, other) }, "-lm", how)
				r.Settled()
				a := rig.Story("Somebody's", 8)
				for range 2 {
					if got := r.Ask("/completion", a); got.Header != "pass; reason=files_changed" {
						t.Errorf("the server has a file that lies there no more: %s", got.Header)
					}
					r.Settled()
				}
				time.Sleep(20 * time.Millisecond)
				again(model, "-lm", how)
				r.Eventually(func() bool {
					got := r.Ask("/completion", a)
					r.Settled()
					return strings.HasPrefix(got.Header, "miss")
				})
			})
		}
	}
}

// A server of somebody else that is started again after its file was written over has what is there now, also where nobody had asked in between.
func TestAttachedServerStartsWithAnotherFile(t *testing.T) {
	for name, replace := range rig.Replacements {
		t.Run(name, func(t *testing.T) {
			model, other := rig.TwoModels(t)
			r, again := attached(t, model)
			r.Settled()
			a := rig.Story("Somebody's", 8)
			want := rig.Alone(t, a, "-m", other)
			r.Ask("/completion", a)
			r.Saved()
			if err := r.Server.Signal(os.Kill); err != nil {
				t.Fatal(err)
			}
			r.Eventually(func() bool { return r.Ask("/completion", a).Status == http.StatusServiceUnavailable })
			replace(t, model, other)
			again(model)
			r.Eventually(func() bool {
				got := r.Ask("/completion", a)
				r.Settled()
				if got.Text != want || strings.HasPrefix(got.Header, "hit") {
					t.Fatalf("%q (%s), alone %q", got.Text, got.Header, want)
				}
				return strings.HasPrefix(got.Header, "miss")
			})
		})
	}
}
