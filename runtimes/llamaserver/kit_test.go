package llamaserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/answer"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// stories is a model of 260 thousand parameters: a prompt takes milliseconds.
const stories = "../llamacpp/testdata/stories260K-f32.gguf"

// program is the real llama-server.
func program(t testing.TB) string {
	t.Helper()
	path := os.Getenv("DORMOUSE_LLAMA_SERVER")
	if path == "" {
		t.Skip("SKIPPED: no llama-server: run tests/llama/server.sh and set DORMOUSE_LLAMA_SERVER to what it prints")
	}
	return path
}

// rig is a server with a front before it.
type rig struct {
	t      testing.TB
	front  *Front
	server *Process
	url    string
	web    *httptest.Server
	log    *logged
}

// logged keeps what was logged.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start starts a server with a front, and waits until its model is known, or refused.
func start(t testing.TB, o Options, args ...string) *rig {
	t.Helper()
	r := startUnready(t, o, args...)
	r.settled()
	return r
}

func startUnready(t testing.TB, o Options, args ...string) *rig {
	t.Helper()
	if !strings.Contains(strings.Join(args, " "), "-m ") {
		args = append([]string{"-m", stories}, args...)
	}
	a, err := ParseArguments(append([]string{program(t), "-t", "1", "-tb", "1"}, args...), os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	return startWith(t, o, a)
}

func startWith(t testing.TB, o Options, a *Arguments) (r *rig) {
	t.Helper()
	r = &rig{t: t, log: &logged{}}
	o.Logger = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "store")
	}
	if o.DB.Codec == 0 {
		o.DB.Codec = quant.Raw
	}
	o.DB.Logger = o.Logger
	var err error
	if r.server, err = NewProcess(a, o.Logger); err != nil {
		t.Fatal(err)
	}
	r.server.Output = io.Discard
	if r.front, err = New(r.server.URL(), a, o); err != nil {
		t.Fatal(err)
	}
	r.web = httptest.NewServer(r.front)
	r.url = r.web.URL
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Log("the front's log:\n" + r.log.String())
		}
	})
	r.server.Unseen = r.front.Unseen
	if err := r.server.Run(r.front.SlotFolder(), r.front.Started); err != nil {
		t.Fatal(err)
	}
	return r
}

// patience is how long a test waits for what must come.
const patience = 4 * time.Minute

// eventually waits until something is so.
func (r *rig) eventually(is func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatal("it never came to that")
		}
	}
}

// untilAnswered asks until the server has loaded its model.
func (r *rig) untilAnswered(path string, body any) (got reply) {
	r.t.Helper()
	r.eventually(func() bool { got = r.ask(path, body); return got.status != http.StatusServiceUnavailable })
	return got
}

// settled waits until it is known whether the model's prompts are kept.
func (r *rig) settled() {
	r.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		s := r.front.servedFor("")
		if m, err := s.ready(); (m != nil || !errors.Is(err, request.PassHashing)) && !s.gone() && reasonOf(err) != request.PassStore {
			return
		}
	}
	r.t.Fatal("the server does not get ready")
}

// saved waits until all slots are saved and stored.
func (r *rig) saved() {
	r.t.Helper()
	r.savedOf("")
}

// savedOf is saved for a model of a router.
func (r *rig) savedOf(model string) {
	r.t.Helper()
	s := r.front.servedFor(model)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		m := s.status()
		open := m.Storing
		for _, sl := range m.Slots {
			open = open || sl.Busy || sl.Unsaved
		}
		if !open {
			return
		}
	}
	r.t.Fatal("the slots are not saved")
}

func (r *rig) stop() {
	if r.web == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r.web.Close()
	r.web = nil
	if err := r.front.Close(ctx); err != nil {
		r.t.Error(err)
	}
	if err := r.server.Stop(ctx); err != nil {
		r.t.Error(err)
	}
}

// killServer kills the server and waits for the next one.
func (r *rig) killServer() {
	r.t.Helper()
	before, pid := r.front.started.Load(), r.server.PID()
	if err := r.server.Signal(os.Kill); err != nil {
		r.t.Fatal(err)
	}
	for end := time.Now().Add(patience); r.front.started.Load() == before || r.server.PID() == pid; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatal("the server was not started again")
		}
	}
	r.settled()
}

// reply is an answer.
type reply struct {
	status int
	header string // X-Dormouse
	body   string
	text   string
	a      answer.Answer
}

// ask sends a request to an address.
func ask(t testing.TB, ctx context.Context, base, path string, body any) reply {
	t.Helper()
	b, ok := body.(string)
	if !ok {
		j, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		b = string(j)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, strings.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{body: err.Error()}
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{status: resp.StatusCode, body: err.Error()}
	}
	out := reply{status: resp.StatusCode, header: resp.Header.Get(Header), body: string(all), a: answer.Read(all)}
	var v struct {
		Content string `json:"content"`
		Choices []struct {
			Text    string
			Message struct{ Content string }
		}
	}
	if json.Unmarshal(all, &v) == nil {
		out.text = v.Content
		if len(v.Choices) > 0 {
			out.text = v.Choices[0].Text + v.Choices[0].Message.Content
		}
	}
	return out
}

// ask sends a request to the front. One that is not answered in two minutes has no status.
func (r *rig) ask(path string, body any) reply {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return ask(r.t, ctx, r.url, path, body)
}

// object is a JSON object.
type object = map[string]any

// story is a greedy completion of a prompt of some length.
func story(begin string, sentences int) object {
	var b strings.Builder
	b.WriteString(begin)
	for i := range sentences {
		fmt.Fprintf(&b, " Then the little dog number %d ran to the park and saw a tree.", i)
	}
	return object{"prompt": b.String(), "n_predict": 16, "temperature": 0}
}

// plain starts a server without a front.
func plain(t testing.TB, args ...string) string {
	t.Helper()
	a, err := ParseArguments(append([]string{program(t), "-t", "1", "-tb", "1", "-m", stories}, args...), os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProcess(a, slog.New(slog.DiscardHandler))
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
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if client.Health(context.Background()) == nil {
			return p.URL().String()
		}
	}
	t.Fatal("the server does not get ready")
	return ""
}

// nowhere is an address where nobody answers.
func nowhere(t *testing.T) *url.URL {
	u, err := url.Parse("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// soil has the memory of the next slot file full of what no file has.
func (r *rig) soil() {
	r.t.Helper()
	f, err := r.front.folder.Create(8 << 20)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range f.Bytes() {
		f.Bytes()[i] = 0xa5
	}
	r.front.folder.DropSpare()
	r.front.folder.Done(f)
}

// other has a test use the server of another variable of the environment.
func other(t *testing.T, name string) {
	t.Helper()
	path := os.Getenv(name)
	if path == "" {
		t.Skipf("SKIPPED: no llama-server: run tests/llama/server.sh and set %s to what it prints", name)
	}
	t.Setenv("DORMOUSE_LLAMA_SERVER", path)
}

func must(t testing.TB, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// serve has the front answer at an address.
func (r *rig) serve() {
	web := httptest.NewServer(r.front)
	r.t.Cleanup(web.Close)
	r.url = web.URL
}
