package llamaserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
)

// stream begins a streamed completion and gives its body after the first event. Cancel leaves it.
func (r *rig) stream(body object) (cancel func(), rest *bufio.Reader) {
	r.t.Helper()
	body["stream"] = true
	b, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/completion", strings.NewReader(string(b)))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { resp.Body.Close() })
	rest = bufio.NewReader(resp.Body)
	if line, err := rest.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
		r.t.Fatalf("the stream begins with %q: %v", line, err)
	}
	return cancel, rest
}

// A stream that breaks off in the middle, because its client goes or its server is killed, ends that request alone.
func TestStreamsBreakOff(t *testing.T) {
	r := start(t, Options{}, "-c", "4096", "-np", "2")
	for _, passes := range []bool{false, true} {
		body := story("Breaking off", 6)
		body["n_predict"] = 400
		if passes {
			body["cache_prompt"] = false
		}
		leave, _ := r.stream(body)
		leave()
		_, rest := r.stream(body)
		if err := r.server.Signal(os.Kill); err != nil {
			t.Fatal(err)
		}
		for err := error(nil); err == nil; {
			_, err = rest.ReadString('\n')
		}
		r.settled()
		if got := r.untilAnswered("/completion", story("Breaking off", 6)); got.text == "" {
			t.Errorf("afterwards: %+v", got)
		}
	}
}

// A request that the front does not guide, and that the server puts into a slot as soon as its request has ended, is no sign that prompts
// are rendered in another way.
func TestForeignRequestTakesASlot(t *testing.T) {
	r := start(t, Options{SaveAfter: 50 * time.Millisecond}, "-c", "4096", "-np", "1")
	body := story("Mine", 8)
	body["n_predict"] = 200
	_, rest := r.stream(body)
	foreign := make(chan reply)
	go func() {
		body := story("Of somebody else", 8)
		body["cache_prompt"], body["n_predict"] = false, 300
		foreign <- r.ask("/completion", body)
	}()
	for err := error(nil); err == nil; {
		_, err = rest.ReadString('\n')
	}
	if got := <-foreign; got.text == "" {
		t.Errorf("the foreign request: %+v", got)
	}
	r.saved()
	if got := r.ask("/completion", story("Mine again", 8)); !strings.HasPrefix(got.header, "miss") {
		t.Errorf("afterwards the endpoint says %q", got.header)
	}
}

// A field that is null says nothing: the slot is the front's to choose.
func TestNullSaysNothing(t *testing.T) {
	r := start(t, Options{}, "-c", "4096", "-np", "2")
	ask := func(begin string, same int) (slot int) {
		t.Helper()
		body := story(begin, same)
		body["prompt"] = body["prompt"].(string) + " And the cat sat on the mat, of course."
		body["id_slot"], body["cache_prompt"] = nil, nil
		got := r.ask("/completion", body)
		var v struct {
			Slot int `json:"id_slot"`
		}
		if err := json.Unmarshal([]byte(got.body), &v); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(got.header, "pass") {
			t.Errorf("%s: %s", begin, got.header)
		}
		r.saved()
		return v.Slot
	}
	first, second := ask("One", 1), ask("Other", 6)
	if first == second {
		t.Errorf("two conversations in slot %d", first)
	}
	// The server by itself would choose the slot with which the prompt has a little in common.
	body := story("Other", 2)["prompt"].(string)
	if third := ask(body, 0); third != first {
		t.Errorf("a third conversation was answered in slot %d, which belongs to the second", third)
	}
}

// A request that the server refuses leaves its slot as it was, and what it held is stored all the same.
func TestRefusedRequestLeavesTheSlot(t *testing.T) {
	r := start(t, Options{SaveAfter: 2 * time.Second}, "-c", "4096", "-np", "1", "--cache-ram", "0")
	first := r.ask("/completion", story("Kept", 8))
	bad := story("Kept", 9)
	bad["grammar"] = "root ::= ("
	if got := r.ask("/completion", bad); got.status != http.StatusBadRequest {
		t.Fatalf("a grammar that is none: %+v", got)
	}
	slot := SlotStatus{Busy: true}
	r.eventually(func() bool { slot = r.front.servedFor("").status().Slots[0]; return !slot.Busy })
	if n := first.a.Cached + first.a.Prompt; slot.Tokens != n || !slot.Unsaved {
		t.Errorf("after a request that was refused, the slot is %+v, expected %d tokens, unsaved", slot, n)
	}
	r.saved()
	r.killServer()
	if got := r.ask("/completion", story("Kept", 8)); !strings.HasPrefix(got.header, "hit") {
		t.Errorf("what was computed before it is %s", got.header)
	}
}

// No connection to the server is kept: each would hold one of its few threads, in whose place others wait for seconds.
func TestConnectionsAreNotKept(t *testing.T) {
	kept := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !r.Close {
			kept <- r.URL.Path
		}
		if q := r.URL.RawQuery; r.URL.Path == "/v1/models" && q != "a=b;c&%zz" {
			kept <- "another query: " + q
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(u, &Arguments{}, Options{Dir: filepath.Join(t.TempDir(), "store")})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(f)
	ask(t, context.Background(), web.URL, "/completion", story("Short", 1))
	resp, err := http.Get(web.URL + "/v1/models?a=b;c&%zz") // what Go does not understand goes on as it is
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	web.Close()
	if err := f.Close(context.Background()); err != nil {
		t.Error(err)
	}
	close(kept)
	for what := range kept {
		t.Error(what)
	}
}

// attached is a front before a server that somebody else runs, and how to run another in its place.
func attached(t *testing.T, model string) (r *rig, replace func(model string, more ...string)) {
	return attachedTo(t, model, func() {})
}

// attachedTo is attached, with something that happens after the server was started and before the front is.
func attachedTo(t *testing.T, model string, between func(), more ...string) (r *rig, replace func(model string, more ...string)) {
	program := program(t)
	slots := t.TempDir()
	r = &rig{t: t, log: &logged{}}
	logger := slog.New(slog.NewTextHandler(r.log, nil))
	ctx := context.Background()
	port := 0
	replace = func(model string, more ...string) {
		t.Helper()
		if r.server != nil {
			if err := r.server.Stop(ctx); err != nil {
				t.Fatal(err)
			}
		}
		a, err := ParseArguments(append([]string{program, "-t", "1", "-c", "2048", "-np", "1", "-m", model}, more...), os.Environ())
		if err != nil {
			t.Fatal(err)
		}
		if r.server, err = NewProcess(a, logger); err != nil {
			t.Fatal(err)
		}
		if r.server.Output = io.Discard; port != 0 {
			r.server.port = port
		}
		port = r.server.port
		if err := r.server.Run(slots, func() {}); err != nil {
			t.Fatal(err)
		}
		direct := &api.Client{Base: r.server.URL(), Client: http.DefaultClient}
		r.eventually(func() bool { return direct.Health(ctx) == nil })
	}
	t.Cleanup(func() { r.server.Stop(ctx) })
	replace(model, more...)
	between()
	var err error
	if r.front, err = New(r.server.URL(), &Arguments{}, Options{
		Dir: filepath.Join(t.TempDir(), "store"), DB: db.Options{Codec: quant.Raw}, Attach: r.server.URL().String(), SlotDir: slots, Logger: logger,
	}); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(r.front)
	r.url = web.URL
	t.Cleanup(func() {
		web.Close()
		if err := r.front.Close(ctx); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(r.log)
		}
	})
	return r, replace
}

// otherWeights is a model of the same shape with other weights.
func otherWeights(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(stories)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(b) - 400_001; i < len(b); i += 40 {
		b[i] ^= 0x80 // a sign
	}
	write(t, path, string(b))
}

// A server that somebody else runs may be replaced while nobody asks: what the one before computed is not for its successor.
func TestAttachedServerIsReplaced(t *testing.T) {
	for _, name := range []string{"model.gguf", "other.gguf"} { // in place of the first file, or beside it
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b, err := os.ReadFile(stories)
			if err != nil {
				t.Fatal(err)
			}
			first, second := filepath.Join(dir, "model.gguf"), filepath.Join(dir, name)
			write(t, first, string(b))
			r, replace := attached(t, first)
			r.settled()
			body := story("Of the first model", 8)
			before := r.ask("/completion", body)
			r.saved()
			otherWeights(t, second)
			replace(second)
			body["cache_prompt"] = false
			alone := ask(t, context.Background(), r.server.URL().String(), "/completion", body)
			delete(body, "cache_prompt")
			replace(second) // its slots are empty
			if alone.text == before.text {
				t.Fatal("the other model says the same")
			}
			for range 2 {
				got := r.ask("/completion", body)
				if got.text != alone.text || strings.HasPrefix(got.header, "hit") {
					t.Errorf("another model: %q (%s), alone %q", got.text, got.header, alone.text)
				}
				r.settled()
				r.saved()
			}
		})
	}
}

// Of a server that somebody else has started, nobody sees the arguments. What it computes shows them.
func TestAttachedServerWithOtherArguments(t *testing.T) {
	model, err := filepath.Abs(stories)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range [][]string{{"--rope-freq-scale", "0.5"}, {"--rope-freq-base", "20000"}, {"--rope-scaling", "yarn", "--rope-scale", "4", "--yarn-orig-ctx", "128"}} {
		t.Run(strings.Join(other, " "), func(t *testing.T) {
			r, replace := attached(t, model)
			r.settled()
			body := story("Of the model as it is", 8)
			first := r.ask("/completion", body)
			r.saved()
			replace(model, other...)
			body["cache_prompt"] = false
			alone := ask(t, context.Background(), r.server.URL().String(), "/completion", body)
			delete(body, "cache_prompt")
			for range 2 {
				got := r.ask("/completion", body)
				if got.text != alone.text || strings.HasPrefix(got.header, "hit") {
					t.Errorf("with %v: %q (%s), alone %q", other, got.text, got.header, alone.text)
				}
				r.settled()
				r.saved()
			}
			if got := r.ask("/completion", body); got.header != "pass; reason=other_rows" {
				t.Errorf("with %v: %s", other, got.header)
			}
			replace(model) // what is stored is whole
			r.untilAnswered("/completion", story("Another", 4))
			r.settled()
			r.eventually(func() bool {
				got := r.ask("/completion", body)
				return got.text == first.text && strings.HasPrefix(got.header, "hit")
			})
		})
	}
}

// A path that is not absolute says nothing to whom was started elsewhere.
func TestAttachedServerNamesItsFile(t *testing.T) {
	r, _ := attached(t, stories)
	r.settled()
	if got := r.ask("/completion", story("Somewhere", 4)); got.header != "pass; reason=unknown_model" {
		t.Errorf("a model by a relative path: %s", got.header)
	}
}

// What was purged does not come back: not from a slot that was on its way into the store, nor from one at work.
func TestPurgedStaysAway(t *testing.T) {
	r := start(t, Options{ScopeByKey: true, SaveAfter: time.Hour}, "-c", "4096", "-np", "2")
	with := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req.Header.Set("Authorization", "Bearer k")
		r.front.ServeHTTP(w, req)
	}))
	defer with.Close()
	r.url = with.URL
	stored := func(body object) int {
		t.Helper()
		model, err := r.front.Store().Models(), error(nil)
		n := 0
		for st, e := range model {
			if err = e; err != nil {
				t.Fatal(err)
			}
			m, err := r.front.Store().Model(st.Fingerprint)
			if err != nil {
				t.Fatal(err)
			}
			tokens, err := r.front.apiOf("").Tokenize(context.Background(), body["prompt"].(string), true)
			if err != nil {
				t.Fatal(err)
			}
			match, err := m.Match(context.Background(), kv.Prompt{Tokens: tokens, Scope: ScopeOfKey("k")}, db.MatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			n = max(n, match.Tokens())
			match.Close()
		}
		return n
	}
	for i := range 20 {
		long := story(fmt.Sprint("At work ", i), 8)
		long["n_predict"] = 200
		_, rest := r.stream(long)
		body := story(fmt.Sprint("A secret ", i), 12)
		if got := r.ask("/completion", body); !strings.HasPrefix(got.header, "miss") && !strings.HasPrefix(got.header, "pass") {
			t.Errorf("before: %s", got.header)
		}
		s := r.front.servedFor("")
		r.eventually(func() bool { return len(s.table.UnsavedBut(nil)) > 0 })
		if err := flush(s); err != nil { // what is saved is on its way into the store
			t.Fatal(err)
		}
		if _, err := r.front.Purge(context.Background(), Purge{Key: "k"}); err != nil {
			t.Fatal(err)
		}
		for err := error(nil); err == nil; {
			_, err = rest.ReadString('\n')
		}
		r.settled()
		if err := flush(r.front.servedFor("")); err != nil {
			t.Fatal(err)
		}
		r.saved()
		for _, body := range []object{body, long} {
			if n := stored(body); n > 0 {
				t.Errorf("of %.20q %d tokens are stored after the purge", body["prompt"], n)
			}
		}
	}
}

// What a request computed whose client was sent away, because the front ends, is saved.
func TestCloseSavesWhatIsAtWork(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	r := start(t, Options{Dir: dir, SaveAfter: time.Hour}, "-c", "4096", "-np", "1")
	body := story("To the end", 10)
	body["n_predict"] = 250
	leave, _ := r.stream(body)
	leave()
	r.stop()
	r = start(t, Options{Dir: dir}, "-c", "4096", "-np", "1")
	if got := r.ask("/completion", story("To the end", 10)); !strings.HasPrefix(got.header, "hit") {
		t.Errorf("afterwards: %s", got.header)
	}
}

// A server that refuses to be looked at, because it wants another API key, delays nobody and is not asked again and again.
func TestServerRefusesToBeLookedAt(t *testing.T) {
	r := startUnready(t, Options{APIKey: "another"}, "--api-key", "secret")
	r.eventually(func() bool {
		return strings.HasPrefix(r.ask("/completion", story("Locked out", 3)).header, "pass; reason=unknown_model")
	})
	s := r.front.servedFor("")
	select {
	case <-s.hold.prepared:
	default:
		t.Error("it is still being looked at")
	}
	if m := s.status(); !strings.Contains(m.Refused, "401") {
		t.Errorf("the status says %q", m.Refused)
	}
}

// A server that is stopped before it is started says so.
func TestStoppedBeforeStarted(t *testing.T) {
	a, err := ParseArguments([]string{program(t), "-m", stories}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProcess(a, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.TempDir(), func() {}); err == nil {
		t.Error("it runs")
	}
}

// flush saves all that only slots have.
func flush(s *served) error {
	k, err := s.ready()
	if err != nil {
		return err
	}
	return k.saver.flush(context.Background())
}
