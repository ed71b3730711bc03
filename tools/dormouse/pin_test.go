package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// A request in a file is warmed and pinned by name, listed, found after a kill of both, and taken off again; and a front with rules says in its status what they changed.
func TestPinAndWarm(t *testing.T) {
	server := withStories(t)
	dir := socketDir(t)
	t.Setenv("DORMOUSE_STORE", filepath.Join(dir, "store"))
	file := filepath.Join(dir, "agent.json")
	const body = `{"messages": [{"role": "system", "content": "You know everything about dogs, cats, trees and parks.\nCurrent date: 2026-11-28\nCurrent working directory: /home/ann"}, {"role": "user", "content": "Go on."}], "max_tokens": 4}`
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	dormouse := func(want int, says string, args ...string) string {
		t.Helper()
		code, text := said(t, args...)
		if code != want || !strings.Contains(text, says) {
			t.Errorf("dormouse %q: %d %q, expected %d and %q", args, code, text, want, says)
		}
		return text
	}
	listening := regexp.MustCompile(`dormouse: (\S+) answers`)
	line := append([]string{"--normalize", "opencode,pi", "--listen", "127.0.0.1:0", "--"}, server...)
	ask := func(s *serving) string {
		t.Helper()
		s.says("prompts of this model are kept")
		resp, err := http.Post("http://"+listening.FindStringSubmatch(s.log.String())[1]+"/v1/chat/completions", "application/json", strings.NewReader(strings.Replace(body, "/home/ann", "/srv/other", 1)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
			t.Errorf("%s %s", resp.Status, b)
		}
		return resp.Header.Get(llamaserver.Header)
	}
	dormouse(1, "no dormouse serve", "pin", file)
	s := startServe(t, line...)
	s.says("prompts of this model are kept")
	dormouse(1, "dormouse warm --pin", "pin", file)
	dormouse(0, "nothing is pinned", "pin", "--list")
	dormouse(0, "waits until no request", "warm", "--pin", file)
	for end := time.Now().Add(time.Minute); !strings.Contains(dormouse(0, "agent", "warm", "--list"), "│ pinned"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is never computed")
		}
	}
	dormouse(0, `"Name":"again"`, "pin", "--json", "--name", "again", "--endpoint", "/v1/chat/completions", file)
	dormouse(2, "FILE.json", "pin")
	dormouse(2, "FILE.json", "pin", "--list", file)
	dormouse(2, "--name", "pin", "-")
	dormouse(1, "no request body", "pin", "--name", "x", writtenTo(t, `{}`))
	dormouse(0, "", "unpin", "again")
	dormouse(1, `"again"`, "unpin", "again")
	s.end(syscall.SIGKILL)

	s = startServe(t, line...)
	if got := ask(s); !strings.HasPrefix(got, "hit; ") || !strings.HasSuffix(got, "; normalized=cwd") {
		t.Errorf("after a kill the first answer in another folder says %s", got)
	}
	dormouse(0, "│ pinned", "pin", "--list")
	dormouse(0, "rule     cwd (pi): move in 1 request\n", "status")
	dormouse(0, "", "unpin", "agent")
	dormouse(0, "nothing is pinned", "warm", "--list")
}

func writtenTo(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
