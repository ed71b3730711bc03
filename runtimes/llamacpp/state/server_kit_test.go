package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// server is a real llama-server with two slots.
type server struct {
	t    *testing.T
	base string
	dir  string // of the slot files
}

// fetched is what an environment variable of tests/llama names.
func fetched(t *testing.T, variable, script string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("SKIPPED: no real llama-server is asked: %s is not set; run: bash tests/llama/%s && . .cache/llama/env.sh", variable, script)
	}
	return path
}

func startServer(t *testing.T, program, model string, flags ...string) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	s := &server{t: t, base: "http://127.0.0.1:" + port, dir: t.TempDir()}
	var log bytes.Buffer
	cmd := exec.Command(program, append([]string{"-m", model, "--host", "127.0.0.1", "--port", port, "--slot-save-path", s.dir,
		"-c", "2048", "-np", "2", "--kv-unified", "--cache-ram", "0", "-t", "1"}, flags...)...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-gone
		if t.Failed() {
			t.Logf("the server said:\n%s", log.Bytes()[max(0, log.Len()-2000):])
		}
	})
	for {
		if r, err := http.Get(s.base + "/health"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return s
			}
		}
		select {
		case err := <-gone:
			gone <- err
			t.Fatalf("the server ended: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *server) post(path string, request, answer any) {
	s.t.Helper()
	b, err := json.Marshal(request)
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := http.Post(s.base+path, "application/json", bytes.NewReader(b))
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err = io.ReadAll(r.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if r.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s: %s", path, r.Status, b)
	}
	if err := json.Unmarshal(b, answer); err != nil {
		s.t.Fatalf("%s: %v in %s", path, err, b)
	}
}

// complete returns how many tokens of the prompt the server had, and the token that it goes on with.
func (s *server) complete(slot int, prompt []int32) (reused int, next int32) {
	s.t.Helper()
	var answer struct {
		Tokens  []int32
		Timings struct {
			CacheN int `json:"cache_n"`
		}
	}
	s.post("/completion", map[string]any{"prompt": prompt, "id_slot": slot, "n_predict": 2, "temperature": 0, "cache_prompt": true, "return_tokens": true}, &answer)
	if len(answer.Tokens) == 0 {
		s.t.Fatal("the server goes on with nothing")
	}
	return answer.Timings.CacheN, answer.Tokens[0]
}

func (s *server) slot(slot int, action string) {
	s.t.Helper()
	var answer any
	s.post(fmt.Sprintf("/slots/%d?action=%s", slot, action), map[string]string{"filename": "slot"}, &answer)
}

func (s *server) save(slot int) []byte {
	s.t.Helper()
	s.slot(slot, "save")
	b, err := os.ReadFile(filepath.Join(s.dir, "slot"))
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

func (s *server) restore(slot int, b []byte) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "slot"), b, 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.slot(slot, "erase")
	s.slot(slot, "restore")
}

// text is n tokens that go on in one way only.
func (s *server) text(n int) []int32 {
	s.t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "word%d is here and there; ", i)
	}
	var answer struct{ Tokens []int32 }
	s.post("/tokenize", map[string]any{"content": b.String(), "add_special": true}, &answer)
	return answer.Tokens[:n]
}

// fillRows copies to a section the rows of its positions from those of the others that have them.
func fillRows(t *testing.T, to *Section, from ...*Section) {
	t.Helper()
	first, end, _ := to.Range()
	for at := first; at < end; {
		var best *Section
		stop := at
		for _, f := range from {
			if a, z, whole := f.Range(); whole && a <= at && min(z, end) > stop {
				best, stop = f, min(z, end)
			}
		}
		if best == nil {
			t.Fatalf("no section has position %d", at)
		}
		for l, lf := range to.format.Layers {
			for role, tf := range map[kv.Role]TensorFormat{kv.RoleK: lf.K, kv.RoleV: lf.V} {
				x := tensor(tf)
				unpack(x, to.Rows(l, role).Slice(x, at, stop), packed(x, best.Rows(l, role).Slice(x, at, stop)))
			}
		}
		at = stop
	}
}
