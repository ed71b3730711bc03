package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Texts are shown where somebody said so at the start: to who may open the control socket, in no answer of HTTP, and in no file. Without the flag explain
// says how to switch it on.
func TestExplainShowsTexts(t *testing.T) {
	server := withStories(t)
	dir := socketDir(t)
	file := filepath.Join(dir, "x.sock")
	client := over(file)
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
		line := append([]string{"--store", store, "--page-for-all", "--"}, append(server, "--host", file)...)
		if on {
			line = append([]string{"--explain"}, line...)
		}
		s := startServe(t, line...)
		s.says("prompts of this model are kept")
		for _, end := range []string{"It was Zebra\\u001b[31m who sang a song to all of them. ", "It was a dog who sang a song to all of them. "} {
			get(http.MethodPost, "/completion", `{"prompt":"`+begin+strings.Repeat(end, 3)+`","n_predict":1}`)
		}
		code, text := said(t, "explain", "--store", store)
		switch {
		case !on && (code != 1 || !strings.Contains(text, "--explain") || strings.Contains(text, "Zebra")):
			t.Errorf("without --explain: %d %s", code, text)
		case on && (code != 0 || !strings.Contains(text, `other   "Zebra\x1b[31m who sang`) || !strings.Contains(text, `this    "a dog who`) || !strings.Contains(text, `It was "`) || !strings.Contains(text, "prompt")):
			t.Errorf("with --explain: %d %s", code, text)
		}
		for _, path := range []string{"/explain", "/dormouse/explain", "/dormouse/", "/dormouse/metrics"} {
			if got := get(http.MethodGet, path, ""); strings.Contains(got, "Zebra") || strings.Contains(got, "who sang") {
				t.Errorf("%s shows the text", path)
			}
		}
		if strings.Contains(s.log.String(), "Zebra") {
			t.Error("the log has the text")
		}
		if _, got := said(t, "status", "--json", "--store", store); !strings.Contains(got, `"Part":"prompt"`) || strings.Contains(got, "Zebra") {
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
