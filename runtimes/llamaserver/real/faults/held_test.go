package faults_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// What answers 200 with anything, a web page, say, is no llama-server: requests pass.
func TestNothingHeldForAPage(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("<html>")) }))
	defer page.Close()
	f, err := llamaserver.New(rig.MustParse(t, page.URL), &llamaserver.Arguments{}, llamaserver.Options{Dir: t.TempDir() + "/store", Attach: page.URL, SlotDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close(context.Background())
	web := httptest.NewServer(f)
	defer web.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, web.URL+"/completion", strings.NewReader(`{"prompt":"x"}`))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get(llamaserver.Header); resp.StatusCode != http.StatusOK || got != "pass; reason=server_failed" {
		t.Errorf("%d %q", resp.StatusCode, got)
	}
}

// A model whose file is read for the first time is not waited for, and the header says so. Once the hash is remembered, the first request of all later fronts is helped.
func TestFirstRequest(t *testing.T) {
	b, err := os.ReadFile(rig.Stories)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	model := filepath.Join(dir, "model.gguf")
	if err := os.WriteFile(model, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(model, 3<<30); err != nil { // a hole, that takes seconds to be hashed
		t.Skipf("NO LARGE FILE CAN BE MADE: %v", err)
	}
	o := llamaserver.Options{Dir: filepath.Join(dir, "store"), Memo: filepath.Join(dir, "memo")}
	body := rig.Story("The first of all requests", 12)
	r := rig.StartUnready(t, o, "-m", model, "-c", "2048")
	if got := r.UntilAnswered("/completion", body); got.Status != http.StatusOK || got.Header != "pass; reason=model_being_hashed" {
		t.Errorf("while its file is read: %d %q", got.Status, got.Header)
	}
	r.Settled()
	want := r.Ask("/completion", body)
	r.Saved()
	r.Stop()
	r = rig.StartUnready(t, o, "-m", model, "-c", "2048")
	loading := 0
	var got rig.Reply
	r.Eventually(func() bool {
		got = r.Ask("/completion", body)
		if got.Status == http.StatusServiceUnavailable {
			loading++
			if got.Header != "pass; reason=server_loading" {
				t.Fatalf("while it loads: %q", got.Header)
			}
		}
		return got.Status != http.StatusServiceUnavailable
	})
	if got.Status != http.StatusOK || !strings.HasPrefix(got.Header, "hit") || got.Text != want.Text {
		t.Errorf("the first request after a start, which was refused %d times: %d %q (%s), expected %q", loading, got.Status, got.Text, got.Header, want.Text)
	}
}

// A front that is started before a server that sleeps has it wake for the first request, which is helped.
func TestFirstRequestWakesTheServer(t *testing.T) {
	dir, slots := t.TempDir(), t.TempDir()
	model, err := filepath.Abs(rig.Stories)
	if err != nil {
		t.Fatal(err)
	}
	base := rig.Plain(t, "-m", model, "-c", "2048", "-np", "1", "--slot-save-path", slots, "--sleep-idle-seconds", "1")
	body := rig.Story("Asleep", 12)
	begin := func() *rig.Rig {
		r := &rig.Rig{T: t, Log: &rig.Log{}}
		o := llamaserver.Options{Dir: filepath.Join(dir, "store"), Memo: filepath.Join(dir, "memo"), Attach: base, SlotDir: slots, Logger: slog.New(slog.NewTextHandler(r.Log, nil))}
		if r.Front, err = llamaserver.New(rig.MustParse(t, base), &llamaserver.Arguments{}, o); err != nil {
			t.Fatal(err)
		}
		r.Serve()
		return r
	}
	end := func(r *rig.Rig) {
		if err := r.Front.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	r := begin()
	r.Settled()
	want := r.Ask("/completion", body)
	r.Saved()
	end(r)
	direct := &api.Client{Base: rig.MustParse(t, base), Client: http.DefaultClient}
	r.Eventually(func() bool { p, err := direct.Props(t.Context()); return err == nil && p.Sleeping })
	r = begin()
	defer end(r)
	if got := r.Ask("/completion", body); !strings.HasPrefix(got.Header, "hit") || got.Text != want.Text {
		t.Errorf("%d %q (%s), expected %q", got.Status, got.Text, got.Header, want.Text)
	}
}

// While a server with an API key starts, who has no key hears what the server says, and never waits to be helped.
func TestNoKeyWhileTheServerLoads(t *testing.T) {
	r := rig.StartUnready(t, llamaserver.Options{}, "-c", "2048", "--api-key", "secret")
	r.Eventually(func() bool {
		got := r.Ask("/completion", rig.Story("Nobody", 8))
		if got.Status != http.StatusServiceUnavailable && got.Status != http.StatusUnauthorized || !strings.HasPrefix(got.Header, "pass") {
			t.Fatalf("%d %q %s", got.Status, got.Header, got.Body)
		}
		return r.Model().Fingerprint != ""
	})
	if got := r.Ask("/completion", rig.Story("Nobody", 8)); got.Status != http.StatusUnauthorized || got.Header != "pass; reason=api_key" {
		t.Errorf("%d %q", got.Status, got.Header)
	}
}
