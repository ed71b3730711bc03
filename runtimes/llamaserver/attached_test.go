package llamaserver_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// attached is a front before a server that somebody else runs, and how to run another in its place.
func attached(t *testing.T, model string) (r *rig.Rig, replace func(model string, more ...string)) {
	return attachedTo(t, model, func() {})
}

// attachedTo is attached, with something that happens after the server was started and before the front is.
func attachedTo(t *testing.T, model string, between func(), more ...string) (r *rig.Rig, replace func(model string, more ...string)) {
	program := rig.Program(t)
	slots := t.TempDir()
	r = &rig.Rig{T: t, Log: &rig.Log{}}
	logger := slog.New(slog.NewTextHandler(r.Log, nil))
	ctx := context.Background()
	port := 0
	replace = func(model string, more ...string) {
		t.Helper()
		if r.Server != nil {
			if err := r.Server.Stop(ctx); err != nil {
				t.Fatal(err)
			}
		}
		a, err := llamaserver.ParseArguments(append([]string{program, "-t", "1", "-c", "2048", "-np", "1", "-m", model}, more...), os.Environ())
		if err != nil {
			t.Fatal(err)
		}
		if r.Server, err = llamaserver.NewProcess(a, logger); err != nil {
			t.Fatal(err)
		}
		if r.Server.Output = io.Discard; port != 0 {
			r.Server.SetPort(port)
		}
		port = r.Server.Port()
		if err := r.Server.Run(slots, func() {}); err != nil {
			t.Fatal(err)
		}
		direct := &api.Client{Base: r.Server.URL(), Client: http.DefaultClient}
		r.Eventually(func() bool { return direct.Health(ctx) == nil })
	}
	t.Cleanup(func() { r.Server.Stop(ctx) })
	replace(model, more...)
	between()
	var err error
	if r.Front, err = llamaserver.New(r.Server.URL(), &llamaserver.Arguments{}, llamaserver.Options{
		Dir: filepath.Join(t.TempDir(), "store"), DB: db.Options{Codec: quant.Raw}, Attach: r.Server.URL().String(), SlotDir: slots, Logger: logger,
	}); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(r.Front)
	r.URL = web.URL
	t.Cleanup(func() {
		web.Close()
		if err := r.Front.Close(ctx); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(r.Log)
		}
	})
	return r, replace
}

// attachedAt is a front before a server that somebody else runs at an address.
func attachedAt(t *testing.T, base, slots string, a *llamaserver.Arguments) *rig.Rig {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig.Rig{T: t, Log: &rig.Log{}}
	logger := slog.New(slog.NewTextHandler(r.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if r.Front, err = llamaserver.New(u, a, llamaserver.Options{Dir: filepath.Join(t.TempDir(), "store"), DB: db.Options{Codec: quant.Raw}, Attach: base, SlotDir: slots, Logger: logger}); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(r.Front)
	r.URL = web.URL
	t.Cleanup(func() {
		web.Close()
		if err := r.Front.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(r.Log)
		}
	})
	r.Settled()
	return r
}
