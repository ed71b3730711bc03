package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// A socket file as --host is served as llama-server would: on that file, which is there again after a kill, and gone after an end. What is no socket is
// not touched, and where somebody answers nobody else does.
func TestSocketFile(t *testing.T) {
	server := withStories(t)
	dir := socketDir(t)
	file := filepath.Join(dir, "x.sock")
	line := append([]string{"--store", filepath.Join(t.TempDir(), "store"), "--"}, append(server, "--host", file)...)
	client := over(file)
	for _, sig := range []os.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		s := startServe(t, line...)
		s.says("prompts of this model are kept")
		resp, err := client.Post("http://localhost/completion", "application/json", strings.NewReader(`{"prompt":"Once upon a time","n_predict":2}`))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || resp.Header.Get(llamaserver.Header) == "" {
			t.Errorf("%s %s", resp.Status, b)
		}
		other := startServe(t, append([]string{"--store", t.TempDir()}, line[2:]...)...)
		other.says("another server answers there")
		s.end(sig)
	}
	if _, err := os.Lstat(file); err == nil {
		t.Error("the socket is left")
	}
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	startServe(t, line...).says("is no socket")
	if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
		t.Errorf("a file in the way is %q now, %v", b, err)
	}
}

// Where --attach reaches nobody, serve says so at once, and so do status and doctor. Requests are answered, and when somebody comes, prompts are kept.
func TestAttachedToNobody(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	l.Close()
	slots, store := t.TempDir(), filepath.Join(t.TempDir(), "store")
	s := startServe(t, "--store", store, "--attach", url, "--slot-dir", slots, "--listen", "127.0.0.1:0")
	s.says("nobody answers as llama-server at " + url)
	dormouse := func(args ...string) string {
		_, text := said(t, args...)
		return text
	}
	if got := dormouse("status", "--store", store); !strings.Contains(got, "server   does not answer at "+url) {
		t.Error(got)
	}
	if got := dormouse("doctor", "--attach", url, "--slot-dir", slots); !strings.Contains(got, "NOT  server") || !strings.Contains(got, url) {
		t.Error(got)
	}
	web := &http.Server{Handler: http.NotFoundHandler()} // something that is no llama-server
	if l, err = net.Listen("tcp", l.Addr().String()); err != nil {
		t.Skip("SKIPPED: the port is taken meanwhile: ", err)
	}
	go web.Serve(l)
	defer web.Close()
	if got := dormouse("status", "--store", store); !strings.Contains(got, "does not answer at "+url) || !strings.Contains(got, "404") {
		t.Error(got)
	}
	web.Close()
	server := realServer(t)
	model, _ := filepath.Abs(stories)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	real := exec.Command(server, "-m", model, "-t", "1", "-c", "512", "-np", "1", "--port", port, "--slot-save-path", slots)
	if err := real.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		real.Process.Signal(syscall.SIGTERM)
		real.Wait()
	}()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if got := dormouse("status", "--store", store); strings.Contains(got, "server   answers at "+url) && strings.Contains(got, "stories260K (") {
			break
		} else if time.Now().After(end) {
			t.Fatal(got)
		}
	}
	if got := dormouse("doctor", "--attach", url, "--slot-dir", slots); strings.Contains(got, "NOT") || !strings.Contains(got, "ok   model") {
		t.Error(got)
	}
}
