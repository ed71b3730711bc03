package llamaserver

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/quant"
)

// A server of somebody else whose file was replaced before the front came has another one than lies there.
func TestAttachedServerHasAnotherFile(t *testing.T) {
	for name, replace := range replacements {
		for _, how := range []string{"mmap", "none"} {
			if name == "written over" && how == "mmap" {
				continue // what is mapped is what was written
			}
			t.Run(name+" "+how, func(t *testing.T) {
				model, other := two(t)
				time.Sleep(20 * time.Millisecond) // the system's clock for files has ticks
				r, again := attachedTo(t, model, func() { time.Sleep(20 * time.Millisecond); replace(t, model, other) }, "-lm", how)
				r.settled()
				a := story("Somebody's", 8)
				for range 2 {
					if got := r.ask("/completion", a); got.header != "pass; reason=files_changed" {
						t.Errorf("the server has a file that lies there no more: %s", got.header)
					}
					r.settled()
				}
				time.Sleep(20 * time.Millisecond)
				again(model, "-lm", how)
				r.eventually(func() bool {
					got := r.ask("/completion", a)
					r.settled()
					return strings.HasPrefix(got.header, "miss")
				})
			})
		}
	}
}

// A server of somebody else that is started again after its file was written over has what is there now, also where nobody had asked in between.
func TestAttachedServerStartsWithAnotherFile(t *testing.T) {
	for name, replace := range replacements {
		t.Run(name, func(t *testing.T) {
			model, other := two(t)
			r, again := attached(t, model)
			r.settled()
			a := story("Somebody's", 8)
			want := alone(t, a, "-m", other)
			r.ask("/completion", a)
			r.saved()
			if err := r.server.Signal(os.Kill); err != nil {
				t.Fatal(err)
			}
			r.eventually(func() bool { return r.ask("/completion", a).status == http.StatusServiceUnavailable })
			replace(t, model, other)
			again(model)
			r.eventually(func() bool {
				got := r.ask("/completion", a)
				r.settled()
				if got.text != want || strings.HasPrefix(got.header, "hit") {
					t.Fatalf("%q (%s), alone %q", got.text, got.header, want)
				}
				return strings.HasPrefix(got.header, "miss")
			})
		})
	}
}

// attachedAt is a front before a server that somebody else runs at an address.
func attachedAt(t *testing.T, base, slots string, a *Arguments) *rig {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, log: &logged{}}
	logger := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if r.front, err = New(u, a, Options{Dir: filepath.Join(t.TempDir(), "store"), DB: db.Options{Codec: quant.Raw}, Attach: base, SlotDir: slots, Logger: logger}); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(r.front)
	r.url = web.URL
	t.Cleanup(func() {
		web.Close()
		if err := r.front.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(r.log)
		}
	})
	r.settled()
	return r
}
