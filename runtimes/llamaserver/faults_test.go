package llamaserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// Whatever is wrong with the store, requests are answered.
func TestFaultsOfTheStore(t *testing.T) {
	for _, c := range []struct {
		name   string
		make   func(t *testing.T, dir string)
		reason string
	}{
		{"a file in its place", func(t *testing.T, dir string) { write(t, dir, "not a folder") }, "no_store"},
		{"somebody's files", func(t *testing.T, dir string) {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "letter.txt"), "dear")
		}, "no_store"},
		{"another version", func(t *testing.T, dir string) {
			closed(t, dir)
			b, err := os.ReadFile(filepath.Join(dir, "FORMAT"))
			if err != nil {
				t.Fatal(err)
			}
			b[8]++
			write(t, filepath.Join(dir, "FORMAT"), string(b))
		}, "no_store"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			c.make(t, dir)
			r := startUnready(t, Options{Dir: dir})
			got := r.untilAnswered("/completion", story("Without a store", 4))
			if got.text == "" || !strings.HasPrefix(got.header, "pass; reason=") {
				t.Errorf("the answer is %+v", got)
			}
			r.eventually(func() bool {
				return strings.HasPrefix(r.ask("/completion", story("Without", 4)).header, "pass; reason="+c.reason)
			})
		})
	}
}

// A store that another process has is taken when it is free.
func TestStoreIsFreed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	other, err := db.Open(context.Background(), dir, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := startUnready(t, Options{Dir: dir})
	if got := r.untilAnswered("/completion", story("Locked", 4)); got.text == "" || !strings.HasPrefix(got.header, "pass") {
		t.Errorf("while the store is locked: %+v", got)
	}
	r.eventually(func() bool { _, err := r.front.shelf.store(); return errors.Is(err, db.ErrLocked) })
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	r.eventually(func() bool { return strings.HasPrefix(r.ask("/completion", story("Freed", 6)).header, "miss") })
}

// When a store comes to be there, its model is looked at without anybody asking for it.
func TestStoreComesUnasked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	other, err := db.Open(context.Background(), dir, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := startUnready(t, Options{Dir: dir})
	kept := func() bool {
		s, err := r.front.Status(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return len(s.Models) > 0 && s.Models[0].Fingerprint != ""
	}
	r.eventually(func() bool { _, err := r.front.servedFor("").ready(); return errors.Is(err, request.PassStore) })
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	r.eventually(kept)
}

// A store that is full, or whose folder is removed while it is open, fails nobody.
func TestStoreFailsAtWork(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	r := start(t, Options{Dir: dir, DB: db.Options{Budget: 1 << 20}}, "-c", "2048")
	for i := range 12 {
		if got := r.ask("/completion", story(strings.Repeat("x", i+1), 10)); got.text == "" {
			t.Fatalf("request %d into a full store: %+v", i, got)
		}
	}
	r.saved()
	r.eventually(func() bool { return os.RemoveAll(dir) == nil }) // the store may be writing
	for i := range 4 {
		if got := r.ask("/completion", story(strings.Repeat("y", i+1), 10)); got.text == "" {
			t.Fatalf("request %d without the folder: %+v", i, got)
		}
	}
	r.saved()
	r.web.Close()
	r.web = nil
	r.front.Close(context.Background()) // has nowhere to write
	r.server.Stop(context.Background())
}

// A server that is not there gets an error of the server's kind, one that hangs is waited for as without us.
func TestServerIsAway(t *testing.T) {
	f, err := New(nowhere(t), &Arguments{}, Options{Dir: filepath.Join(t.TempDir(), "store")})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close(context.Background())
	web := httptest.NewServer(f)
	defer web.Close()
	for _, path := range []string{"/completion", "/v1/chat/completions"} {
		got := ask(t, context.Background(), web.URL, path, object{"prompt": "a", "messages": []object{}})
		if got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "unavailable_error") {
			t.Errorf("%s: %+v", path, got)
		}
	}
	resp, err := http.Get(web.URL + "/health")
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/health: %v %v", resp, err)
	}
}

func TestServerHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u := nowhere(t)
	u.Host = l.Addr().String()
	f, err := New(u, &Arguments{}, Options{Dir: filepath.Join(t.TempDir(), "store")})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(f)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if got := ask(t, ctx, web.URL, "/completion", story("Hanging", 3)); got.status != 0 {
		t.Errorf("the answer is %+v", got)
	}
	web.Close()
	if err := f.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// A server that crashes in a loop is started again, later and later, and the front stays.
func TestServerCrashes(t *testing.T) {
	a, err := ParseArguments([]string{program(t), "-m", "/does/not/exist.gguf"}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	r := startWith(t, Options{}, a)
	r.eventually(func() bool { return r.front.started.Load() >= 2 })
	if got := r.ask("/completion", story("Crashing", 3)); got.status != http.StatusServiceUnavailable {
		t.Errorf("the answer is %+v", got)
	}
	if s := r.server.State(); !strings.Contains(s, "again") && s != "running" {
		t.Errorf("its state is %q", s)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// closed leaves a store that nobody has open.
func closed(t *testing.T, dir string) {
	t.Helper()
	s, err := db.Open(context.Background(), dir, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
