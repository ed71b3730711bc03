package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// All paths but the front's own reach the server as they are.
func TestPathsAreNotCleaned(t *testing.T) {
	named := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, name, " ", r.RequestURI) })
	}
	h := (&options{allowRemote: true}).handler(named("front"), named("page"), named("metrics"))
	for uri, want := range map[string]string{
		"/v1/models":           "front /v1/models",
		"//v1/models?a=1":      "front //v1/models?a=1",
		"/a/../dormouse/":      "front /a/../dormouse/",
		"/dormouse/../metrics": "page /dormouse/../metrics",
		"/dormouse/":           "page /dormouse/",
		"/dormouse/metrics":    "metrics /dormouse/metrics",
		"/dormouses":           "front /dormouses",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, uri, nil))
		if got := w.Body.String(); w.Code != http.StatusOK || got != want {
			t.Errorf("%s: %d %q, expected %q", uri, w.Code, got, want)
		}
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/dormouse/metrics", nil)
	r.RemoteAddr = "192.0.2.1:1234"
	(&options{}).handler(named("front"), named("page"), named("metrics")).ServeHTTP(w, r)
	if w.Code != http.StatusForbidden {
		t.Errorf("another machine gets the metrics: %d", w.Code)
	}
}

// What is typed wrongly is said, at once, with an exit code.
func TestTypedWrongly(t *testing.T) {
	server := os.Getenv("DORMOUSE_LLAMA_SERVER")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("XDG_RUNTIME_DIR", "")
	own := t.TempDir()
	if err := os.WriteFile(filepath.Join(own, "letter.txt"), []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line string
		code int
		says string
	}{
		{"serve", 2, "no server is named"},
		{"serve --bogus", 2, "--bogus"},
		{"serve -- /does/not/exist", 1, "cannot be started"},
		{"serve --budget -4 -- x", 2, "--budget"},
		{"serve --normalize claude -- x", 2, "claude-code, codex, opencode"},
		{"serve --attach http://127.0.0.1:1", 2, "--slot-dir"},
		{"serve --store " + t.TempDir() + "/s --listen 127.0.0.1:0 -- SERVER -m /does/not/exist.gguf", 1, "before it answered"},
		{"status", 1, "no dormouse serve"},
		{"purge", 2, "say what to purge"},
		{"purge --all", 1, "there is no store"},
		{"purge --all --model a", 2, "model"},
		{"doctor", 2, "no server is named"},
		{"doctor -- SERVER --no-such-flag", 1, "ended"},
		{"doctor -- SERVER -m /does/not/exist.gguf", 1, "ended"},
		{"doctor --store " + own + " -- SERVER -m /does/not/exist.gguf", 1, "letter.txt"},
	} {
		if strings.Contains(c.line, "SERVER") && server == "" {
			t.Log("SKIPPED: no llama-server for: dormouse " + c.line)
			continue
		}
		var out, err bytes.Buffer
		code := run(context.Background(), strings.Fields(strings.ReplaceAll(c.line, "SERVER", server)), &out, &err)
		if said := out.String() + err.String(); code != c.code || !strings.Contains(said, c.says) {
			t.Errorf("dormouse %s: %d %q, expected %d and %q", c.line, code, said, c.code, c.says)
		}
	}
}
