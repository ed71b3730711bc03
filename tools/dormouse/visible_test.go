package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// What a stranger named his model does not command the terminal.
func TestControlCharacters(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	dir := t.TempDir()
	path, err := socketPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
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
			{Name: name, Restores: true, Fingerprint: "1"}, {Name: "two", Refused: name}}}, nil)
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
