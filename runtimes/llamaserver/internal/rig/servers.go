package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
)

// Plain starts a server without a front.
func Plain(t testing.TB, args ...string) string {
	t.Helper()
	a, err := llamaserver.ParseArguments(append([]string{Program(t), "-t", "1", "-tb", "1", "-m", Stories}, args...), os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	p, err := llamaserver.NewProcess(a, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p.Output = io.Discard
	if err := p.Run(t.TempDir(), func() {}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		p.Stop(ctx)
	})
	client := &api.Client{Base: p.URL(), Client: http.DefaultClient}
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if client.Health(context.Background()) == nil {
			return p.URL().String()
		}
	}
	t.Fatal("the server does not get ready")
	return ""
}

// UseServer has a test use the server of another variable of the environment.
func UseServer(t *testing.T, name string) {
	t.Helper()
	path := os.Getenv(name)
	if path == "" {
		t.Skipf("SKIPPED: no llama-server: run tests/llama/server.sh and set %s to what it prints", name)
	}
	t.Setenv("DORMOUSE_LLAMA_SERVER", path)
}

// OtherWeights writes a model of the same shape with other weights.
func OtherWeights(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(Stories)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(b) - 400_001; i < len(b); i += 40 {
		b[i] ^= 0x80 // a sign
	}
	WriteFile(t, path, string(b))
}

// TwoModels are copies of one small model with different weights, of the same size, in a folder of their own.
func TwoModels(t *testing.T) (model, other string) {
	t.Helper()
	dir := t.TempDir()
	model, other = filepath.Join(dir, "model.gguf"), filepath.Join(dir, "other.gguf")
	b, err := os.ReadFile(Stories)
	if err != nil {
		t.Fatal(err)
	}
	WriteFile(t, model, string(b))
	OtherWeights(t, other)
	return model, other
}

// Alone returns what a server without a front answers.
func Alone(t *testing.T, body Object, args ...string) string {
	t.Helper()
	b := Object{"cache_prompt": false}
	for k, v := range body {
		if k != "cache_prompt" {
			b[k] = v
		}
	}
	got := Ask(t, context.Background(), Plain(t, args...), "/completion", b)
	if got.Status != http.StatusOK {
		t.Fatalf("alone: %+v", got)
	}
	return got.Text
}

// Asleep waits until the server has given its model up.
func (r *Rig) Asleep() {
	r.T.Helper()
	direct := &api.Client{Base: r.Server.URL(), Client: http.DefaultClient}
	r.Eventually(func() bool { p, err := direct.Props(context.Background()); return err == nil && p.Sleeping })
}

// PlainURL is a server without a front.
func PlainURL(t *testing.T) *url.URL {
	t.Helper()
	u, err := url.Parse(Plain(t, "-m", Stories))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// How a model's file becomes another one.
var Replacements = map[string]func(t *testing.T, model, other string){
	"renamed": func(t *testing.T, model, other string) {
		if err := os.Rename(other, model); err != nil {
			t.Fatal(err)
		}
	},
	"moved away": func(t *testing.T, model, other string) {
		if err := os.Rename(model, model+".old"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(other, model); err != nil {
			t.Fatal(err)
		}
	},
	"written over": func(t *testing.T, model, other string) {
		info, err := os.Stat(model)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(other)
		if err != nil {
			t.Fatal(err)
		}
		WriteFile(t, model, string(b))
		if err := os.Chtimes(model, time.Time{}, info.ModTime()); err != nil { // as cp -p, and touch -r, do
			t.Fatal(err)
		}
	},
}

func WriteFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ClosedStore makes a store that nobody has open.
func ClosedStore(t *testing.T, dir string) {
	t.Helper()
	s, err := db.Open(context.Background(), dir, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Between puts a proxy between a front and its server.
func (r *Rig) Between(before func(*http.Request)) {
	proxy := httputil.NewSingleHostReverseProxy(r.Server.URL())
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		before(req)
		proxy.ServeHTTP(w, req)
	}))
	r.T.Cleanup(web.Close)
	*r.Base = *MustParse(r.T, web.URL)
	r.Front.Started()
	r.Settled()
}

func ReadBody(t *testing.T, r *http.Request) []byte {
	t.Helper()
	var b strings.Builder
	buf := make([]byte, 1<<16)
	for {
		n, err := r.Body.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return []byte(b.String())
		}
	}
}

// Flood has other prompts computed and stored until what was not used for longest is evicted, twice over.
func (r *Rig) Flood() {
	r.T.Helper()
	evicted := func() int64 {
		st, err := r.Front.Store().Stats()
		if err != nil {
			r.T.Fatal(err)
		}
		return st.Evicted
	}
	before, n := evicted(), 0
	for ; evicted() < before+40 && n < 200; n++ {
		if got := r.Ask("/completion", Story(fmt.Sprint(n, " is the number of this story, ", n), 9)); got.Status != 200 {
			r.T.Fatalf("story %d: %+v", n, got)
		}
		r.Saved()
	}
	if n == 200 {
		r.T.Fatal("nothing is evicted")
	}
}

// KeepOf is what dormouse pin sends of an agent's request.
func KeepOf(t testing.TB, name string, body Object) llamaserver.Keep {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return llamaserver.Keep{Name: name, Body: b}
}

// SmallStore is a store with room for some ten prompts.
func SmallStore() db.Options { return db.Options{Budget: 3 << 20, SegmentBytes: 256 << 10} }

// ResetBody gives a request another body.
func ResetBody(r *http.Request, body []byte) {
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	r.TransferEncoding = nil
}
