package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// stories is a model of 260 thousand parameters.
const stories = "../../runtimes/llamacpp/testdata/stories260K-f32.gguf"

// realServer is the program of a real llama-server. Without one the test is skipped.
func realServer(t testing.TB) string {
	t.Helper()
	server := os.Getenv("DORMOUSE_LLAMA_SERVER")
	if server == "" {
		t.Skip("SKIPPED: no llama-server: run tests/llama/server.sh and set DORMOUSE_LLAMA_SERVER to what it prints")
	}
	return server
}

// withStories are the arguments of a real server with the model stories.
func withStories(t testing.TB, more ...string) []string {
	t.Helper()
	return append([]string{realServer(t), "-m", stories, "-t", "1", "-c", "512", "-np", "1"}, more...)
}

// socketDir is a folder for control sockets, whose path is short enough for their names.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	return dir
}

// over is a client that reaches a server at a socket file.
func over(file string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", file)
	}}}
}

// said runs the command in this process, and returns its exit code and what it prints.
func said(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String() + errs.String()
}

// serving is dormouse serve as a process of its own.
type serving struct {
	t   *testing.T
	cmd *exec.Cmd
	log *output
}

func startServe(t *testing.T, args ...string) *serving {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &serving{t, exec.Command(self, append([]string{"serve"}, args...)...), &output{}}
	s.cmd.Env = append(os.Environ(), asCommand+"=1")
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.end(os.Kill)
		if t.Failed() {
			t.Log(s.log)
		}
	})
	return s
}

// end ends the process, unless it has ended.
func (s *serving) end(sig os.Signal) {
	if s.cmd.ProcessState == nil {
		s.cmd.Process.Signal(sig)
		s.cmd.Wait()
	}
}

// says waits until the process has logged something.
func (s *serving) says(what string) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(s.log.String(), what); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("it never said %q", what)
		}
	}
}
