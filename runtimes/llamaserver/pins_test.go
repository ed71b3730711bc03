package llamaserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/answer"
)

// keepOf is what dormouse pin sends of an agent's request.
func keepOf(t testing.TB, name string, body object) Keep {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return Keep{Name: name, Body: b}
}

// flood has other prompts computed and stored until what was not used for longest is evicted, twice over.
func (r *rig) flood() {
	r.t.Helper()
	evicted := func() int64 {
		st, err := r.front.Store().Stats()
		if err != nil {
			r.t.Fatal(err)
		}
		return st.Evicted
	}
	before, n := evicted(), 0
	for ; evicted() < before+40 && n < 200; n++ {
		if got := r.ask("/completion", story(fmt.Sprint(n, " is the number of this story, ", n), 9)); got.status != 200 {
			r.t.Fatalf("story %d: %+v", n, got)
		}
		r.saved()
	}
	if n == 200 {
		r.t.Fatal("nothing is evicted")
	}
}

// small is a store with room for some ten prompts.
func small() db.Options { return db.Options{Budget: 3 << 20, SegmentBytes: 256 << 10} }

// What is pinned is found after everything else was evicted, and after both were started again; what is not pinned is gone. The name can be taken off.
func TestPinsOutliveEviction(t *testing.T) {
	dir, args := filepath.Join(t.TempDir(), "store"), append(systemFirst(t), "-c", "4096", "-np", "1", "--cache-ram", "0")
	r := start(t, Options{Dir: dir, DB: small(), SaveAfter: 20 * time.Millisecond}, args...)
	first, other := agent("/home/ann"), agent("/srv/other")
	if _, err := r.front.Pin(t.Context(), keepOf(t, "shop", first)); err == nil || !strings.Contains(err.Error(), "dormouse warm") {
		t.Errorf("a pin of what is not stored: %v", err)
	}
	r.ask("/v1/chat/completions", first)
	kept, err := r.front.Pin(t.Context(), keepOf(t, "shop", first)) // its slot was not even saved
	if err != nil || kept.State != "pinned" || kept.Tokens < 200 {
		t.Fatalf("%+v, %v", kept, err)
	}
	r.ask("/v1/chat/completions", other)
	r.saved()
	r.flood()
	question := func(body object) reply {
		messages := body["messages"].([]object)
		body["messages"] = []object{messages[0], {"role": "user", "content": "Something else?"}}
		return r.ask("/v1/chat/completions", body)
	}
	if got := question(agent("/home/ann")); !strings.HasPrefix(got.header, "hit") || got.a.Cached < kept.Tokens-1 {
		t.Errorf("of %d pinned tokens %d are reused after evictions (%s)", kept.Tokens, got.a.Cached, got.header)
	}
	r.flood()
	if got := question(agent("/srv/other")); got.a.Cached > kept.Tokens/2 {
		t.Errorf("what was not pinned is there, too, %d tokens of it (%s): the test shows nothing", got.a.Cached, got.header)
	}
	r.stop()
	r = start(t, Options{Dir: dir, DB: small(), SaveAfter: 20 * time.Millisecond}, args...)
	list, err := r.front.Pins()
	if err != nil || len(list) != 1 || list[0].Name != "shop" || list[0].Tokens != kept.Tokens || !list[0].Pinned || list[0].State != "pinned" || list[0].Model != kept.Model {
		t.Errorf("after a restart the pins are %+v, %v", list, err)
	}
	if got := question(agent("/home/ann")); !strings.HasPrefix(got.header, "hit") || got.a.Cached < kept.Tokens-1 {
		t.Errorf("after a restart %d of %d pinned tokens are reused (%s)", got.a.Cached, kept.Tokens, got.header)
	}
	if err := r.front.Unpin(t.Context(), "shop"); err != nil {
		t.Error(err)
	}
	if err := r.front.Unpin(t.Context(), "shop"); err == nil || !strings.Contains(err.Error(), `"shop"`) {
		t.Errorf("a name that is none: %v", err)
	}
	r.flood()
	if got := question(agent("/home/ann")); got.a.Cached > kept.Tokens/2 {
		t.Errorf("what is pinned no more was not evicted: %d tokens are reused (%s)", got.a.Cached, got.header)
	}
}

// What is to be warm is computed when nobody asks for anything, up to its last token, by each way in; and whoever asks first has all of it.
func TestWarm(t *testing.T) {
	r := start(t, Options{}, append(systemFirst(t), "-c", "4096", "-np", "2")...)
	schema := object{"type": "object"}
	system := "You know everything about dogs, cats, trees and parks. You know it of all of them."
	for _, c := range []struct {
		name, path string
		body       object
	}{
		{"chat", "/v1/chat/completions", agent("/home/ann")},
		{"messages", "/v1/messages", object{"system": []object{{"type": "text", "text": system}}, "tools": []object{{"name": "write", "description": "writes", "input_schema": schema}}, "messages": []object{{"role": "user", "content": "Go"}}, "max_tokens": 4}},
		{"responses", "/v1/responses", object{"instructions": "Well. " + system, "tools": []object{{"type": "function", "name": "seek", "description": "seeks", "parameters": schema}}, "input": "Go", "max_output_tokens": 4}},
		{"completion", "/completion", object{"prompt": "Once " + system, "n_predict": 4}},
	} {
		k := keepOf(t, c.name, c.body)
		k.Pin = c.name == "chat"
		if got, err := r.front.Warm(t.Context(), k); err != nil || !strings.HasPrefix(got.State, "waits until") || got.Tokens == 0 {
			t.Fatalf("%s: %+v, %v", c.name, got, err)
		}
	}
	r.eventually(func() bool {
		list, err := r.front.Pins()
		if err != nil || len(list) != 4 {
			t.Fatalf("%+v, %v", list, err)
		}
		for _, k := range list {
			if k.State != "stored" && k.State != "pinned" {
				return false
			}
		}
		return true
	})
	if f := r.front.Figures(); f.Asked != 0 || len(f.Recent) != 0 {
		t.Errorf("what the front did by itself counts as requests: %+v", f.Recent)
	}
	r.saved()
	r.killServer()
	list, err := r.front.Pins()
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string]int{}
	for _, k := range list {
		tokens[k.Name] = k.Tokens
		if k.Pinned != (k.Name == "chat") {
			t.Errorf("%+v", k)
		}
	}
	if got := r.ask("/v1/chat/completions", agent("/home/ann")); !strings.HasPrefix(got.header, "hit") || got.a.Cached < tokens["chat"]-1 {
		t.Errorf("of %d warm tokens the first request reuses %d (%s)", tokens["chat"], got.a.Cached, got.header)
	}
	if got, err := r.front.Warm(t.Context(), keepOf(t, "again", agent("/home/ann"))); err != nil || got.State != "stored" {
		t.Errorf("what is stored: %+v, %v", got, err)
	}
	for _, k := range []Keep{{Name: "", Body: []byte(`{"prompt":"a"}`)}, {Name: "a\n", Body: []byte(`{"prompt":"a"}`)}, {Name: "a", Body: []byte(`{}`)}, {Name: "a", Body: []byte(`[`)}, {Name: "a", Endpoint: "/v1/models", Body: []byte(`{"prompt":"a"}`)},
		{Name: "a", Body: []byte(`{"messages":[{"role":"user","content":[{"type":"image_url"}]},{"role":"user","content":"q"}]}`)}, {Name: "a", Body: []byte(`{"prompt":"short"}`)}} {
		if got, err := r.front.Warm(t.Context(), k); err == nil {
			t.Errorf("%s %s: %+v", k.Name, k.Body, got)
		}
	}
}

// Who asks is not kept waiting by what nobody asks for, which goes on afterwards; and what is not wanted any more is not computed.
func TestWarmGivesWay(t *testing.T) {
	r := start(t, Options{}, append(systemFirst(t), "-c", "4096", "-np", "1")...)
	if _, err := r.front.Warm(t.Context(), keepOf(t, "one", agent("/home/ann"))); err != nil {
		t.Fatal(err)
	}
	if _, err := r.front.Warm(t.Context(), keepOf(t, "two", agent("/srv/other"))); err != nil {
		t.Fatal(err)
	}
	if err := r.front.Unpin(t.Context(), "two"); err != nil {
		t.Error(err)
	}
	if list, err := r.front.Pins(); err != nil || len(list) != 1 || list[0].Name != "one" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := r.server.Signal(os.Kill); err != nil { // what is to be computed waits for the next server, and nothing of that is a request
		t.Fatal(err)
	}
	r.front.warming.turn.Lock() // one thing is done at idle at a time: it is this test now
	free := sync.OnceFunc(r.front.warming.turn.Unlock)
	defer free()
	idle, cancel, err := r.front.traffic.idle(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer cancel()
	if got := r.untilAnswered("/completion", story("Somebody asks", 4)); got.status != 200 {
		t.Fatalf("%+v", got)
	}
	if idle.Err() == nil {
		t.Error("what is done at idle is not given up for a request")
	}
	free()
	r.eventually(func() bool {
		list, err := r.front.Pins()
		return err == nil && len(list) == 1 && list[0].State == "stored"
	})
}

// A model with sliding windows goes on only where its state was saved: a prefix that is warm ends there. And keys share no more of it than they share of anything.
func TestWarmOfWindowsAndKeys(t *testing.T) {
	model := os.Getenv("DORMOUSE_LLAMA_MODEL")
	if model == "" {
		t.Skip("SKIPPED: no model with windows: run tests/llama/fetch.sh and set DORMOUSE_LLAMA_MODEL to what it prints")
	}
	r := start(t, Options{ScopeByKey: true}, "-m", model, "-c", "2048", "-np", "1", "--cache-ram", "0", "--api-key", "ann,bob", "--chat-template", "chatml")
	body := agent("/home/ann")
	delete(body, "tools")
	body["messages"].([]object)[0]["content"] = strings.Repeat("You know everything about dogs, cats, trees and parks. ", 5)
	ask := func(key, path string, body any) reply {
		t.Helper()
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+path, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		all, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return reply{status: resp.StatusCode, header: resp.Header.Get(Header), body: string(all), a: answer.Read(all)}
	}
	another := func() { // takes the slot
		t.Helper()
		r.saved()
		if got := ask("ann", "/completion", object{"prompt": "Something else", "n_predict": 1}); got.status != 200 {
			t.Fatalf("%+v", got)
		}
	}
	warm := func(k Keep) int {
		t.Helper()
		if _, err := r.front.Warm(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		tokens := 0
		r.eventually(func() bool {
			list, err := r.front.Pins()
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range list {
				if x.Name == k.Name && x.State == "pinned" {
					tokens = x.Tokens
				}
			}
			return tokens > 0
		})
		return tokens
	}
	k := keepOf(t, "chat", body)
	k.Pin = true
	n := warm(k)
	another()
	for _, key := range []string{"ann", "bob"} { // a system prompt is everybody's
		if got := ask(key, "/v1/chat/completions", body); got.status != 200 || !strings.HasPrefix(got.header, "hit") || got.a.Cached < n-1 {
			t.Errorf("%s: of %d warm tokens %d are reused: %d %s %s", key, n, got.a.Cached, got.status, got.header, got.body)
		}
		another()
	}
	anns := Keep{Name: "anns", Key: "ann", Pin: true, Body: []byte(`{"prompt":"` + strings.Repeat("All that Ann says of her dog is a secret. ", 5) + `","n_predict":2}`)}
	n = warm(anns)
	another()
	question := object{"prompt": strings.Repeat("All that Ann says of her dog is a secret. ", 5) + "So what is it?", "n_predict": 2}
	if got := ask("bob", "/completion", question); got.status != 200 || !strings.HasPrefix(got.header, "miss") {
		t.Errorf("another key's is found: %d %s", got.status, got.header)
	}
	another()
	if got := ask("ann", "/completion", question); got.status != 200 || !strings.HasPrefix(got.header, "hit") || got.a.Cached < n-2 { // a letter may join the last token
		t.Errorf("of %d warm tokens %d are reused by whose they are: %d %s", n, got.a.Cached, got.status, got.header)
	}
	// What is purged is not computed again.
	end := r.front.traffic.begin()
	defer end()
	for _, k := range []Keep{{Name: "anns next", Key: "ann", Body: []byte(`{"prompt":"` + strings.Repeat("Ann has a cat, too, and it likes the dog. ", 10) + `"}`)}, {Name: "bobs", Key: "bob", Body: []byte(`{"prompt":"` + strings.Repeat("Bob has a cat, and he likes it. ", 10) + `"}`)}} {
		if _, err := r.front.Warm(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.front.Purge(t.Context(), Purge{Key: "ann"}); err != nil {
		t.Fatal(err)
	}
	list, err := r.front.Pins()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range list {
		if x.State != "not stored any more: it was evicted, or deleted" {
			names = append(names, x.Name)
		}
	}
	if fmt.Sprint(names) != "[bobs chat]" {
		t.Errorf("after a purge of ann's there are %+v", list)
	}
}
