package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Texts are shown where somebody said so at the start: to who may open the control socket, in no answer of HTTP, and in no file. Without the flag explain
// says how to switch it on.
func TestExplainShowsTexts(t *testing.T) {
	server := os.Getenv("DORMOUSE_LLAMA_SERVER")
	if server == "" {
		t.Skip("SKIPPED: no llama-server: run tests/llama/server.sh and set DORMOUSE_LLAMA_SERVER to what it prints")
	}
	dir, err := os.MkdirTemp("", "d") // names of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	file := filepath.Join(dir, "x.sock")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", file)
	}}}
	get := func(method, path, body string) string {
		t.Helper()
		req, err := http.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return fmt.Sprint(resp.Status, resp.Header, string(b))
	}
	begin := strings.Repeat("Once upon a time there was a cat. ", 3)
	for _, on := range []bool{false, true} {
		store := filepath.Join(t.TempDir(), "store")
		line := []string{"--store", store, "--page-for-all", "--", server, "-m", "../../runtimes/llamacpp/testdata/stories260K-f32.gguf", "-t", "1", "-c", "512", "-np", "1", "--host", file}
		if on {
			line = append([]string{"--explain"}, line...)
		}
		s := startServe(t, line...)
		s.says("prompts of this model are kept")
		for _, end := range []string{"It was Zebra\\u001b[31m who sang a song to all of them. ", "It was a dog who sang a song to all of them. "} {
			get(http.MethodPost, "/completion", `{"prompt":"`+begin+strings.Repeat(end, 3)+`","n_predict":1}`)
		}
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"explain", "--store", store}, &out, &errs)
		said := out.String() + errs.String()
		switch {
		case !on && (code != 1 || !strings.Contains(said, "--explain") || strings.Contains(said, "Zebra")):
			t.Errorf("without --explain: %d %s", code, said)
		case on && (code != 0 || !strings.Contains(said, `other   "Zebra\x1b[31m who sang`) || !strings.Contains(said, `this    "a dog who`) || !strings.Contains(said, `It was "`) || !strings.Contains(said, "prompt")):
			t.Errorf("with --explain: %d %s", code, said)
		}
		for _, path := range []string{"/explain", "/dormouse/explain", "/dormouse/", "/dormouse/metrics"} {
			if got := get(http.MethodGet, path, ""); strings.Contains(got, "Zebra") || strings.Contains(got, "who sang") {
				t.Errorf("%s shows the text", path)
			}
		}
		if strings.Contains(s.log.String(), "Zebra") {
			t.Error("the log has the text")
		}
		var status bytes.Buffer
		run(t.Context(), []string{"status", "--json", "--store", store}, &status, &errs)
		if got := status.String(); !strings.Contains(got, `"Part":"prompt"`) || strings.Contains(got, "Zebra") {
			t.Errorf("the status is %s", got)
		}
		s.end(os.Interrupt)
		filepath.WalkDir(filepath.Dir(store), func(path string, e fs.DirEntry, err error) error {
			if b, _ := os.ReadFile(path); err == nil && bytes.Contains(b, []byte("Zebra")) {
				t.Errorf("%s has the text", path)
			}
			return nil
		})
	}
}
