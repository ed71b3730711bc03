package faults_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// Whatever is wrong with the store, requests are answered.
func TestFaultsOfTheStore(t *testing.T) {
	for _, c := range []struct {
		name   string
		make   func(t *testing.T, dir string)
		reason string
	}{
		{"a file in its place", func(t *testing.T, dir string) { rig.WriteFile(t, dir, "not a folder") }, "no_store"},
		{"somebody's files", func(t *testing.T, dir string) {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			rig.WriteFile(t, filepath.Join(dir, "letter.txt"), "dear")
		}, "no_store"},
		{"another version", func(t *testing.T, dir string) {
			rig.ClosedStore(t, dir)
			b, err := os.ReadFile(filepath.Join(dir, "FORMAT"))
			if err != nil {
				t.Fatal(err)
			}
			b[8]++
			rig.WriteFile(t, filepath.Join(dir, "FORMAT"), string(b))
		}, "no_store"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			c.make(t, dir)
			r := rig.StartUnready(t, llamaserver.Options{Dir: dir})
			got := r.UntilAnswered("/completion", rig.Story("Without a store", 4))
			if got.Text == "" || !strings.HasPrefix(got.Header, "pass; reason=") {
				t.Errorf("the answer is %+v", got)
			}
			r.Eventually(func() bool {
				return strings.HasPrefix(r.Ask("/completion", rig.Story("Without", 4)).Header, "pass; reason="+c.reason)
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
	r := rig.StartUnready(t, llamaserver.Options{Dir: dir})
	if got := r.UntilAnswered("/completion", rig.Story("Locked", 4)); got.Text == "" || !strings.HasPrefix(got.Header, "pass") {
		t.Errorf("while the store is locked: %+v", got)
	}
	r.Eventually(func() bool { return errors.Is(r.Front.Opened(0), db.ErrLocked) })
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	asked := 0
	r.Eventually(func() bool { // another prompt each time: the server has those that were passed in its slots
		asked++
		return strings.HasPrefix(r.Ask("/completion", rig.Story(fmt.Sprint("Freed ", asked), 6)).Header, "miss")
	})
}

// When a store comes to be there, its model is looked at without anybody asking for it.
func TestStoreComesUnasked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	other, err := db.Open(context.Background(), dir, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := rig.StartUnready(t, llamaserver.Options{Dir: dir})
	kept := func() bool {
		s, err := r.Front.Status(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return len(s.Models) > 0 && s.Models[0].Fingerprint != ""
	}
	r.Eventually(func() bool { return strings.HasPrefix(r.Model().Refused, string(request.PassStore)) })
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	r.Eventually(kept)
}

// A store that is full, or whose folder is removed while it is open, fails nobody.
func TestStoreFailsAtWork(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	r := rig.Start(t, llamaserver.Options{Dir: dir, DB: db.Options{Budget: 1 << 20}}, "-c", "2048")
	for i := range 12 {
		if got := r.Ask("/completion", rig.Story(strings.Repeat("x", i+1), 10)); got.Text == "" {
			t.Fatalf("request %d into a full store: %+v", i, got)
		}
	}
	r.Saved()
	r.Eventually(func() bool { return os.RemoveAll(dir) == nil }) // the store may be writing
	for i := range 4 {
		if got := r.Ask("/completion", rig.Story(strings.Repeat("y", i+1), 10)); got.Text == "" {
			t.Fatalf("request %d without the folder: %+v", i, got)
		}
	}
	r.Saved()
	r.Web.Close()
	r.Web = nil
	r.Front.Close(context.Background()) // has nowhere to write
	r.Server.Stop(context.Background())
}

// A server that is not there gets an error of the server's kind, one that hangs is waited for as without us.
func TestServerIsAway(t *testing.T) {
	f, err := llamaserver.New(rig.Nowhere(t), &llamaserver.Arguments{}, llamaserver.Options{Dir: filepath.Join(t.TempDir(), "store")})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close(context.Background())
	web := httptest.NewServer(f)
	defer web.Close()
	for _, path := range []string{"/completion", "/v1/chat/completions"} {
		got := rig.Ask(t, context.Background(), web.URL, path, rig.Object{"prompt": "a", "messages": []rig.Object{}})
		if got.Status != http.StatusServiceUnavailable || !strings.Contains(got.Body, "unavailable_error") {
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
	u := rig.Nowhere(t)
	u.Host = l.Addr().String()
	f, err := llamaserver.New(u, &llamaserver.Arguments{}, llamaserver.Options{Dir: filepath.Join(t.TempDir(), "store")})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(f)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if got := rig.Ask(t, ctx, web.URL, "/completion", rig.Story("Hanging", 3)); got.Status != 0 {
		t.Errorf("the answer is %+v", got)
	}
	web.Close()
	if err := f.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// A server that crashes in a loop is started again, later and later, and the front stays.
func TestServerCrashes(t *testing.T) {
	a, err := llamaserver.ParseArguments([]string{rig.Program(t), "-m", "/does/not/exist.gguf"}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	r := rig.StartWith(t, llamaserver.Options{}, a)
	r.Eventually(func() bool { return r.Status().Started >= 2 })
	if got := r.Ask("/completion", rig.Story("Crashing", 3)); got.Status != http.StatusServiceUnavailable {
		t.Errorf("the answer is %+v", got)
	}
	if s := r.Server.State(); !strings.Contains(s, "again") && s != "running" {
		t.Errorf("its state is %q", s)
	}
}
