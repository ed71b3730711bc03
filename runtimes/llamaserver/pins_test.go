package llamaserver_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// What is pinned is found after everything else was evicted, and after both were started again; what is not pinned is gone. The name can be taken off.
func TestPinsOutliveEviction(t *testing.T) {
	dir, args := filepath.Join(t.TempDir(), "store"), append(rig.SystemFirst(t), "-c", "4096", "-np", "1", "--cache-ram", "0")
	r := rig.Start(t, llamaserver.Options{Dir: dir, DB: rig.SmallStore(), SaveAfter: 20 * time.Millisecond}, args...)
	first, other := rig.AgentRequest("/home/ann"), rig.AgentRequest("/srv/other")
	if _, err := r.Front.Pin(t.Context(), rig.KeepOf(t, "shop", first)); err == nil || !strings.Contains(err.Error(), "dormouse warm") {
		t.Errorf("a pin of what is not stored: %v", err)
	}
	r.Ask("/v1/chat/completions", first)
	kept, err := r.Front.Pin(t.Context(), rig.KeepOf(t, "shop", first)) // its slot was not even saved
	if err != nil || kept.State != "pinned" || kept.Tokens < 200 {
		t.Fatalf("%+v, %v", kept, err)
	}
	r.Ask("/v1/chat/completions", other)
	r.Saved()
	r.Flood()
	question := func(body rig.Object) rig.Reply {
		messages := body["messages"].([]rig.Object)
		body["messages"] = []rig.Object{messages[0], {"role": "user", "content": "Something else?"}}
		return r.Ask("/v1/chat/completions", body)
	}
	if got := question(rig.AgentRequest("/home/ann")); !strings.HasPrefix(got.Header, "hit") || got.A.Cached < kept.Tokens-1 {
		t.Errorf("of %d pinned tokens %d are reused after evictions (%s)", kept.Tokens, got.A.Cached, got.Header)
	}
	r.Flood()
	if got := question(rig.AgentRequest("/srv/other")); got.A.Cached > kept.Tokens/2 {
		t.Errorf("what was not pinned is there, too, %d tokens of it (%s): the test shows nothing", got.A.Cached, got.Header)
	}
	r.Stop()
	r = rig.Start(t, llamaserver.Options{Dir: dir, DB: rig.SmallStore(), SaveAfter: 20 * time.Millisecond}, args...)
	list, err := r.Front.Pins()
	if err != nil || len(list) != 1 || list[0].Name != "shop" || list[0].Tokens != kept.Tokens || !list[0].Pinned || list[0].State != "pinned" || list[0].Model != kept.Model {
		t.Errorf("after a restart the pins are %+v, %v", list, err)
	}
	if got := question(rig.AgentRequest("/home/ann")); !strings.HasPrefix(got.Header, "hit") || got.A.Cached < kept.Tokens-1 {
		t.Errorf("after a restart %d of %d pinned tokens are reused (%s)", got.A.Cached, kept.Tokens, got.Header)
	}
	if err := r.Front.Unpin(t.Context(), "shop"); err != nil {
		t.Error(err)
	}
	if err := r.Front.Unpin(t.Context(), "shop"); err == nil || !strings.Contains(err.Error(), `"shop"`) {
		t.Errorf("a name that is none: %v", err)
	}
	r.Flood()
	if got := question(rig.AgentRequest("/home/ann")); got.A.Cached > kept.Tokens/2 {
		t.Errorf("what is pinned no more was not evicted: %d tokens are reused (%s)", got.A.Cached, got.Header)
	}
}

// What is to be warm is computed when nobody asks for anything, up to its last token, by each way in; and whoever asks first has all of it.
func TestWarm(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, append(rig.SystemFirst(t), "-c", "4096", "-np", "2")...)
	schema := rig.Object{"type": "object"}
	system := "You know everything about dogs, cats, trees and parks. You know it of all of them."
	for _, c := range []struct {
		name, path string
		body       rig.Object
	}{
		{"chat", "/v1/chat/completions", rig.AgentRequest("/home/ann")},
		{"messages", "/v1/messages", rig.Object{"system": []rig.Object{{"type": "text", "text": system}}, "tools": []rig.Object{{"name": "write", "description": "writes", "input_schema": schema}}, "messages": []rig.Object{{"role": "user", "content": "Go"}}, "max_tokens": 4}},
		{"responses", "/v1/responses", rig.Object{"instructions": "Well. " + system, "tools": []rig.Object{{"type": "function", "name": "seek", "description": "seeks", "parameters": schema}}, "input": "Go", "max_output_tokens": 4}},
		{"completion", "/completion", rig.Object{"prompt": "Once " + system, "n_predict": 4}},
	} {
		k := rig.KeepOf(t, c.name, c.body)
		k.Pin = c.name == "chat"
		if got, err := r.Front.Warm(t.Context(), k); err != nil || !strings.HasPrefix(got.State, "waits until") || got.Tokens == 0 {
			t.Fatalf("%s: %+v, %v", c.name, got, err)
		}
	}
	r.Eventually(func() bool {
		list, err := r.Front.Pins()
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
	if f := r.Front.Figures(); f.Asked != 0 || len(f.Recent) != 0 {
		t.Errorf("what the front did by itself counts as requests: %+v", f.Recent)
	}
	r.Saved()
	r.KillServer()
	list, err := r.Front.Pins()
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
	if got := r.Ask("/v1/chat/completions", rig.AgentRequest("/home/ann")); !strings.HasPrefix(got.Header, "hit") || got.A.Cached < tokens["chat"]-1 {
		t.Errorf("of %d warm tokens the first request reuses %d (%s)", tokens["chat"], got.A.Cached, got.Header)
	}
	if got, err := r.Front.Warm(t.Context(), rig.KeepOf(t, "again", rig.AgentRequest("/home/ann"))); err != nil || got.State != "stored" {
		t.Errorf("what is stored: %+v, %v", got, err)
	}
	for _, k := range []llamaserver.Keep{{Name: "", Body: []byte(`{"prompt":"a"}`)}, {Name: "a\n", Body: []byte(`{"prompt":"a"}`)}, {Name: "a", Body: []byte(`{}`)}, {Name: "a", Body: []byte(`[`)}, {Name: "a", Endpoint: "/v1/models", Body: []byte(`{"prompt":"a"}`)},
		{Name: "a", Body: []byte(`{"messages":[{"role":"user","content":[{"type":"image_url"}]},{"role":"user","content":"q"}]}`)}, {Name: "a", Body: []byte(`{"prompt":"short"}`)}} {
		if got, err := r.Front.Warm(t.Context(), k); err == nil {
			t.Errorf("%s %s: %+v", k.Name, k.Body, got)
		}
	}
}

// Who asks is not kept waiting by what nobody asks for, which goes on afterwards; and what is not wanted any more is not computed.
func TestWarmGivesWay(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, append(rig.SystemFirst(t), "-c", "4096", "-np", "1")...)
	if _, err := r.Front.Warm(t.Context(), rig.KeepOf(t, "one", rig.AgentRequest("/home/ann"))); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Front.Warm(t.Context(), rig.KeepOf(t, "two", rig.AgentRequest("/srv/other"))); err != nil {
		t.Fatal(err)
	}
	if err := r.Front.Unpin(t.Context(), "two"); err != nil {
		t.Error(err)
	}
	if list, err := r.Front.Pins(); err != nil || len(list) != 1 || list[0].Name != "one" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := r.Server.Signal(os.Kill); err != nil { // what is to be computed waits for the next server, and nothing of that is a request
		t.Fatal(err)
	}
	idle, free, err := r.Front.AtIdle(t.Context()) // one thing is done at idle at a time: it is this test now
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	if got := r.UntilAnswered("/completion", rig.Story("Somebody asks", 4)); got.Status != 200 {
		t.Fatalf("%+v", got)
	}
	if idle.Err() == nil {
		t.Error("what is done at idle is not given up for a request")
	}
	free()
	r.Eventually(func() bool {
		list, err := r.Front.Pins()
		return err == nil && len(list) == 1 && list[0].State == "stored"
	})
}

// A model with sliding windows goes on only where its state was saved: a prefix that is warm ends there. And keys share no more of it than they share of anything.
func TestWarmOfWindowsAndKeys(t *testing.T) {
	model := os.Getenv("DORMOUSE_LLAMA_MODEL")
	if model == "" {
		t.Skip("SKIPPED: no model with windows: run tests/llama/fetch.sh and set DORMOUSE_LLAMA_MODEL to what it prints")
	}
	r := rig.Start(t, llamaserver.Options{ScopeByKey: true}, "-m", model, "-c", "2048", "-np", "1", "--cache-ram", "0", "--api-key", "ann,bob", "--chat-template", "chatml")
	body := rig.AgentRequest("/home/ann")
	delete(body, "tools")
	body["messages"].([]rig.Object)[0]["content"] = strings.Repeat("You know everything about dogs, cats, trees and parks. ", 5)
	ask := func(key, path string, body any) rig.Reply { return rig.AskAs(t, r.URL, path, key, body) }
	another := func() { // takes the slot
		t.Helper()
		r.Saved()
		if got := ask("ann", "/completion", rig.Object{"prompt": "Something else", "n_predict": 1}); got.Status != 200 {
			t.Fatalf("%+v", got)
		}
	}
	warm := func(k llamaserver.Keep) int {
		t.Helper()
		if _, err := r.Front.Warm(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		tokens := 0
		r.Eventually(func() bool {
			list, err := r.Front.Pins()
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
	k := rig.KeepOf(t, "chat", body)
	k.Pin = true
	n := warm(k)
	another()
	for _, key := range []string{"ann", "bob"} { // a system prompt is everybody's
		if got := ask(key, "/v1/chat/completions", body); got.Status != 200 || !strings.HasPrefix(got.Header, "hit") || got.A.Cached < n-1 {
			t.Errorf("%s: of %d warm tokens %d are reused: %d %s %s", key, n, got.A.Cached, got.Status, got.Header, got.Body)
		}
		another()
	}
	anns := llamaserver.Keep{Name: "anns", Key: "ann", Pin: true, Body: []byte(`{"prompt":"` + strings.Repeat("All that Ann says of her dog is a secret. ", 5) + `","n_predict":2}`)}
	n = warm(anns)
	another()
	question := rig.Object{"prompt": strings.Repeat("All that Ann says of her dog is a secret. ", 5) + "So what is it?", "n_predict": 2}
	if got := ask("bob", "/completion", question); got.Status != 200 || !strings.HasPrefix(got.Header, "miss") {
		t.Errorf("another key's is found: %d %s", got.Status, got.Header)
	}
	another()
	if got := ask("ann", "/completion", question); got.Status != 200 || !strings.HasPrefix(got.Header, "hit") || got.A.Cached < n-2 { // a letter may join the last token
		t.Errorf("of %d warm tokens %d are reused by whose they are: %d %s", n, got.A.Cached, got.Status, got.Header)
	}
	// What is purged is not computed again.
	end := r.Front.BeginTraffic()
	defer end()
	for _, k := range []llamaserver.Keep{{Name: "anns next", Key: "ann", Body: []byte(`{"prompt":"` + strings.Repeat("Ann has a cat, too, and it likes the dog. ", 10) + `"}`)}, {Name: "bobs", Key: "bob", Body: []byte(`{"prompt":"` + strings.Repeat("Bob has a cat, and he likes it. ", 10) + `"}`)}} {
		if _, err := r.Front.Warm(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Front.Purge(t.Context(), llamaserver.Purge{Key: "ann"}); err != nil {
		t.Fatal(err)
	}
	list, err := r.Front.Pins()
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
