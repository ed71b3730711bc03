package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// What a stranger named his model does not command the terminal.
func TestControlCharacters(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	dir := t.TempDir()
	paths := socketPaths(dir)
	l, err := net.Listen("unix", paths[0])
	if err != nil {
		t.Skip("SKIPPED: no sockets in files here: ", err)
	}
	const name = "one \x1b]0;title\a \u009b2J\rnothing"
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			http.Error(w, name, http.StatusInternalServerError)
			return
		}
		answer(w, llamaserver.Status{Dir: dir, Models: []llamaserver.ModelStatus{
			{Name: name, Fingerprint: "1"}, {Name: "two", Refused: name}}}, nil)
	})}
	go server.Serve(l)
	defer server.Close()
	for _, line := range []string{"status", "status --json", "purge --all"} {
		var out, errs bytes.Buffer
		run(context.Background(), append(strings.Fields(line), "--store", dir), &out, &errs)
		if text := out.String() + errs.String(); strings.ContainsAny(text, "\x1b\a\r\u009b") || !strings.Contains(text, "one ") {
			t.Errorf("%s: %q", line, text)
		}
	}
}

// A front is found from where other variables are set, and by another name of its store's folder.
func TestFrontIsFound(t *testing.T) {
	runtimeDir := t.TempDir()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("XDG_RUNTIME_DIR", "")
	dir := t.TempDir()
	paths := socketPaths(dir)
	if err := os.MkdirAll(filepath.Dir(paths[0]), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", paths[0])
	if err != nil {
		t.Skip("SKIPPED: no sockets in files here: ", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, llamaserver.Status{Dir: dir}, nil) })}
	go server.Serve(l)
	defer server.Close()
	t.Setenv("XDG_RUNTIME_DIR", runtimeDir)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Skip("SKIPPED: no links here: ", err)
	}
	for _, name := range []string{dir, link} {
		var out, errs bytes.Buffer
		if code := run(context.Background(), []string{"status", "--store", name}, &out, &errs); code != 0 {
			t.Errorf("%s: %d %s%s", name, code, out.String(), errs.String())
		}
	}
	if _, err := newControl(link, nil, nil); err == nil || !strings.Contains(err.Error(), "another dormouse serve") {
		t.Errorf("a second front: %v", err)
	}
}

// Who names no store means the only front that runs here; where there are several, they are named, and none is chosen.
func TestOnlyFrontIsMeant(t *testing.T) {
	base, err := os.MkdirTemp("", "d") // names of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	t.Setenv("HOME", base)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("XDG_RUNTIME_DIR", base)
	front := func() string {
		dir := t.TempDir()
		l, err := net.Listen("unix", socketPaths(dir)[0])
		if err != nil {
			t.Skip("SKIPPED: no sockets in files here: ", err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/status" {
				answer(w, llamaserver.Status{Dir: dir}, nil)
				return
			}
			answer(w, []llamaserver.Explained{}, nil)
		})}
		go server.Serve(l)
		t.Cleanup(func() { server.Close() })
		return dir
	}
	say := func(line string) (int, string) {
		var out bytes.Buffer
		code := run(t.Context(), strings.Fields(line), &out, &out)
		return code, out.String()
	}
	const explain, watch = "explain", "doctor --watch --for 1ms"
	if code, text := say(explain); code != 1 || !strings.Contains(text, "no dormouse serve") {
		t.Errorf("none runs: %d, %s", code, text)
	}
	one := front()
	for _, line := range []string{explain, watch} {
		if code, text := say(line); code != 0 {
			t.Errorf("%s: %d, %s", line, code, text)
		}
	}
	if _, text := say(watch); !strings.Contains(text, one) {
		t.Errorf("it does not say which one it watches: %s", text)
	}
	two := front()
	for _, line := range []string{explain, watch} {
		if code, text := say(line); code == 0 || !strings.Contains(text, one) || !strings.Contains(text, two) {
			t.Errorf("two run: %s: %d, %s", line, code, text)
		}
		if code, text := say(line + " --store " + two); code != 0 {
			t.Errorf("of two one is named: %s: %d, %s", line, code, text)
		}
	}
}
