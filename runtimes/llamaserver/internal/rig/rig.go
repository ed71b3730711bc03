package rig

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// Stories is a model of 260 thousand parameters: a prompt takes milliseconds. The path is relative, as users write it.
var Stories = func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	path, err := filepath.Rel(dir, filepath.Join(Root, "runtimes", "llamacpp", "testdata", "stories260K-f32.gguf"))
	if err != nil {
		panic(err)
	}
	return path
}()

// Root is the folder of the project.
var Root = func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		above := filepath.Dir(dir)
		if above == dir {
			panic("no go.mod above the folder of the test")
		}
		dir = above
	}
}()

// Testdata is the path of a file for tests of package llamaserver.
func Testdata(name string) string {
	return filepath.Join(Root, "runtimes", "llamaserver", "testdata", name)
}

// Program returns the path of the real llama-server. Without one the test is skipped.
func Program(t testing.TB) string {
	t.Helper()
	path := os.Getenv("DORMOUSE_LLAMA_SERVER")
	if path == "" {
		t.Skip("SKIPPED: no llama-server: run tests/llama/server.sh and set DORMOUSE_LLAMA_SERVER to what it prints")
	}
	return path
}

// Rig is a server with a front before it.
type Rig struct {
	T      testing.TB
	Front  *llamaserver.Front
	Server *llamaserver.Process
	Base   *url.URL // where the front looks for the server
	URL    string
	Web    *httptest.Server
	Log    *Log
}

// Log keeps what was logged.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Start starts a server with a front, and waits until its model is known, or refused.
func Start(t testing.TB, o llamaserver.Options, args ...string) *Rig {
	t.Helper()
	r := StartUnready(t, o, args...)
	r.Settled()
	return r
}

func StartUnready(t testing.TB, o llamaserver.Options, args ...string) *Rig {
	t.Helper()
	if !strings.Contains(strings.Join(args, " "), "-m ") {
		args = append([]string{"-m", Stories}, args...)
	}
	a, err := llamaserver.ParseArguments(append([]string{Program(t), "-t", "1", "-tb", "1"}, args...), os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	return StartWith(t, o, a)
}

func StartWith(t testing.TB, o llamaserver.Options, a *llamaserver.Arguments) (r *Rig) {
	t.Helper()
	r = &Rig{T: t, Log: &Log{}}
	o.Logger = slog.New(slog.NewTextHandler(r.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "store")
	}
	if o.DB.Codec == 0 {
		o.DB.Codec = quant.Raw
	}
	o.DB.Logger = o.Logger
	var err error
	if r.Server, err = llamaserver.NewProcess(a, o.Logger); err != nil {
		t.Fatal(err)
	}
	r.Server.Output = io.Discard
	r.Base = r.Server.URL()
	if r.Front, err = llamaserver.New(r.Base, a, o); err != nil {
		t.Fatal(err)
	}
	r.Web = httptest.NewServer(r.Front)
	r.URL = r.Web.URL
	t.Cleanup(func() {
		r.Stop()
		if t.Failed() {
			t.Log("the front's log:\n" + r.Log.String())
		}
	})
	r.Server.Unseen = r.Front.Unseen
	if err := r.Server.Run(r.Front.SlotFolder(), r.Front.Started); err != nil {
		t.Fatal(err)
	}
	return r
}

// Patience is how long a test waits for what must come.
const Patience = 4 * time.Minute

// Eventually waits until something is so.
func (r *Rig) Eventually(is func() bool) {
	r.T.Helper()
	for end := time.Now().Add(Patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.T.Fatal("it never came to that")
		}
	}
}

// Status is how the front is. While the store is suspended, it does not say which models there are.
func (r *Rig) Status() llamaserver.Status {
	r.T.Helper()
	st, err := r.Front.Status(context.Background())
	if err != nil && !errors.Is(err, db.ErrSuspended) {
		r.T.Fatal(err)
	}
	return st
}

// Model is how the front's model is. Of a front that has none just now it says nothing.
func (r *Rig) Model() (m llamaserver.ModelStatus) {
	r.T.Helper()
	if all := r.Status().Models; len(all) > 0 {
		m = all[0]
	}
	return m
}

// Settled waits until it is known whether the model's prompts are kept.
func (r *Rig) Settled() {
	r.T.Helper()
	r.Eventually(func() bool {
		r.Front.Prepare() // it may have been given up
		m := r.Model()
		return m.Fingerprint != "" || m.Refused != "" && !strings.HasPrefix(m.Refused, "no_store")
	})
}

// Saved waits until all slots are saved and stored.
func (r *Rig) Saved() {
	r.T.Helper()
	r.Eventually(func() bool {
		return !slices.ContainsFunc(r.Status().Models, func(m llamaserver.ModelStatus) bool {
			return m.Storing || slices.ContainsFunc(m.Slots, func(sl llamaserver.SlotStatus) bool { return sl.Busy || sl.Unsaved })
		})
	})
}

func (r *Rig) Stop() {
	if r.Web == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r.Web.Close()
	r.Web = nil
	if err := r.Front.Close(ctx); err != nil {
		r.T.Error(err)
	}
	if err := r.Server.Stop(ctx); err != nil {
		r.T.Error(err)
	}
}

// KillServer kills the server and waits for the next one.
func (r *Rig) KillServer() {
	r.T.Helper()
	before, pid := r.Status().Started, r.Server.PID()
	if err := r.Server.Signal(os.Kill); err != nil {
		r.T.Fatal(err)
	}
	for end := time.Now().Add(Patience); r.Status().Started == before || r.Server.PID() == pid; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.T.Fatal("the server was not started again")
		}
	}
	r.Settled()
}

// Nowhere is an address where nobody answers.
func Nowhere(t *testing.T) *url.URL {
	u, err := url.Parse("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func MustParse(t testing.TB, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// Serve has the front answer at an address.
func (r *Rig) Serve() {
	web := httptest.NewServer(r.Front)
	r.T.Cleanup(web.Close)
	r.URL = web.URL
}
