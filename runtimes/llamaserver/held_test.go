package llamaserver

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// A request waits for a model that is being prepared: at most five seconds from the server's first answer, and not at all once waiting does not pay, or its client
// has gone. While the server loads the model it waits as long as that takes.
func TestHeld(t *testing.T) {
	begin := func(answered bool) *served {
		s := &served{hold: newHold()}
		if answered {
			s.hold.meets()
		}
		return s
	}
	after := func(d time.Duration, do func()) { time.AfterFunc(d, do) }
	for _, c := range []struct {
		name     string
		answered bool
		then     func(s *served, leave func())
		waits    time.Duration
		leaves   bool
	}{
		{"nothing happens", true, func(s *served, leave func()) {}, heldTime, false},
		{"it is prepared", true, func(s *served, leave func()) { after(time.Second, func() { close(s.hold.prepared) }) }, time.Second, false},
		{"waiting does not pay", true, func(s *served, leave func()) { after(time.Second, func() { s.hold.release(request.PassUnhashed) }) }, time.Second, false},
		{"nothing is stored", true, func(s *served, leave func()) { after(time.Second/2, s.hold.shortens) }, briefTime, false},
		{"it is known late that nothing is stored", true, func(s *served, leave func()) { after(2*time.Second, s.hold.shortens) }, 2 * time.Second, false},
		{"the client goes", true, func(s *served, leave func()) { after(time.Second, leave) }, time.Second, true},
		{"a long load", false, func(s *served, leave func()) {
			after(time.Hour, func() { s.hold.meets() })
			after(time.Hour+time.Second, func() { close(s.hold.prepared) })
		}, time.Hour + time.Second, false},
		{"a long load of what is not prepared", false, func(s *served, leave func()) {
			after(time.Hour, func() { s.hold.meets() })
		}, time.Hour + heldTime, false},
		{"the client goes while it loads", false, func(s *served, leave func()) { after(time.Second, leave) }, time.Second, true},
		{"the server says something else", false, func(s *served, leave func()) {
			after(time.Second, func() { s.strange(&api.StatusError{Status: http.StatusInternalServerError}) })
		}, time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				s := begin(c.answered)
				c.then(s, leave)
				start := time.Now()
				stays := s.hold.patient(ctx)
				if took := time.Since(start); took != c.waits || stays == c.leaves {
					t.Errorf("it waited for %v, and the client is there: %t; expected %v, %t", took, stays, c.waits, !c.leaves)
				}
			})
		})
	}
}

// What answers 200 with anything, a web page, say, is no llama-server: requests pass.
func TestNothingHeldForAPage(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("<html>")) }))
	defer page.Close()
	f, err := New(must(t, page.URL), &Arguments{}, Options{Dir: t.TempDir() + "/store", Attach: page.URL, SlotDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
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
	if got := resp.Header.Get(Header); resp.StatusCode != http.StatusOK || got != "pass; reason=server_failed" {
		t.Errorf("%d %q", resp.StatusCode, got)
	}
}

// A model whose file is read for the first time is not waited for, and the header says so. Once the hash is remembered, the first request of all later fronts is helped.
func TestFirstRequest(t *testing.T) {
	b, err := os.ReadFile(stories)
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
	o := Options{Dir: filepath.Join(dir, "store"), Memo: filepath.Join(dir, "memo")}
	body := story("The first of all requests", 12)
	r := startUnready(t, o, "-m", model, "-c", "2048")
	if got := r.untilAnswered("/completion", body); got.status != http.StatusOK || got.header != "pass; reason=model_being_hashed" {
		t.Errorf("while its file is read: %d %q", got.status, got.header)
	}
	r.settled()
	want := r.ask("/completion", body)
	r.saved()
	r.stop()
	r = startUnready(t, o, "-m", model, "-c", "2048")
	loading := 0
	var got reply
	r.eventually(func() bool {
		got = r.ask("/completion", body)
		if got.status == http.StatusServiceUnavailable {
			loading++
			if got.header != "pass; reason=server_loading" {
				t.Fatalf("while it loads: %q", got.header)
			}
		}
		return got.status != http.StatusServiceUnavailable
	})
	if got.status != http.StatusOK || !strings.HasPrefix(got.header, "hit") || got.text != want.text {
		t.Errorf("the first request after a start, which was refused %d times: %d %q (%s), expected %q", loading, got.status, got.text, got.header, want.text)
	}
}

// A front that is started before a server that sleeps has it wake for the first request, which is helped.
func TestFirstRequestWakesTheServer(t *testing.T) {
	dir, slots := t.TempDir(), t.TempDir()
	model, err := filepath.Abs(stories)
	if err != nil {
		t.Fatal(err)
	}
	base := plain(t, "-m", model, "-c", "2048", "-np", "1", "--slot-save-path", slots, "--sleep-idle-seconds", "1")
	body := story("Asleep", 12)
	begin := func() *rig {
		r := &rig{t: t, log: &logged{}}
		o := Options{Dir: filepath.Join(dir, "store"), Memo: filepath.Join(dir, "memo"), Attach: base, SlotDir: slots, Logger: slog.New(slog.NewTextHandler(r.log, nil))}
		if r.front, err = New(must(t, base), &Arguments{}, o); err != nil {
			t.Fatal(err)
		}
		r.serve()
		return r
	}
	end := func(r *rig) {
		if err := r.front.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	r := begin()
	r.settled()
	want := r.ask("/completion", body)
	r.saved()
	end(r)
	direct := &api.Client{Base: must(t, base), Client: http.DefaultClient}
	r.eventually(func() bool { p, err := direct.Props(t.Context()); return err == nil && p.Sleeping })
	r = begin()
	defer end(r)
	if got := r.ask("/completion", body); !strings.HasPrefix(got.header, "hit") || got.text != want.text {
		t.Errorf("%d %q (%s), expected %q", got.status, got.text, got.header, want.text)
	}
}

// While a server with an API key starts, who has no key hears what the server says, and never waits to be helped.
func TestNoKeyWhileTheServerLoads(t *testing.T) {
	r := startUnready(t, Options{}, "-c", "2048", "--api-key", "secret")
	r.eventually(func() bool {
		got := r.ask("/completion", story("Nobody", 8))
		if got.status != http.StatusServiceUnavailable && got.status != http.StatusUnauthorized || !strings.HasPrefix(got.header, "pass") {
			t.Fatalf("%d %q %s", got.status, got.header, got.body)
		}
		m, _ := r.front.servedFor("").ready()
		return m != nil
	})
	if got := r.ask("/completion", story("Nobody", 8)); got.status != http.StatusUnauthorized || got.header != "pass; reason=api_key" {
		t.Errorf("%d %q", got.status, got.header)
	}
}
