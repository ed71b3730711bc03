package llamaserver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// between puts a proxy between a front and its server.
func (r *rig) between(before func(*http.Request)) {
	proxy := httputil.NewSingleHostReverseProxy(r.server.URL())
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		before(req)
		proxy.ServeHTTP(w, req)
	}))
	r.t.Cleanup(web.Close)
	*r.front.base = *must(r.t, web.URL)
	r.front.Started()
	r.settled()
}

// A restore that takes long once, because a disk spins up, say, ends nothing; and the answer says why nothing was restored where that is so.
func TestSlowRestore(t *testing.T) {
	r := start(t, Options{}, "-c", "2048", "-np", "1")
	var hold atomic.Int64
	r.between(func(req *http.Request) {
		if req.URL.Query().Get("action") == "restore" {
			time.Sleep(time.Duration(hold.Load()))
		}
	})
	ask := func(i int) reply {
		t.Helper()
		got := r.ask("/completion", story(fmt.Sprint("Turn about ", i%2), 14))
		r.saved()
		return got
	}
	for i := range 4 {
		ask(i)
	}
	hold.Store(int64(2 * time.Second))
	if got := ask(0); !strings.HasPrefix(got.header, "hit") {
		t.Fatalf("the slow one: %s", got.header)
	}
	hold.Store(0)
	for i := range 6 {
		if got := ask(1 + i); !strings.HasPrefix(got.header, "hit") {
			t.Errorf("restore %d after a slow one: %s", i, got.header)
		}
	}
	hold.Store(int64(2 * time.Second)) // and now always
	said := ""
	for i := 0; i < 20 && !strings.HasPrefix(said, "miss"); i++ {
		said = ask(1 + i).header
	}
	if !strings.HasPrefix(said, "miss; reason=too_slow") {
		t.Errorf("where each restore takes long: %s", said)
	}
	if m := r.front.servedFor("").status(); len(m.Resting) != 1 || m.Resting[0].Reason != "too_slow" {
		t.Errorf("the status says %+v", m.Resting)
	}
	hold.Store(0)
	for i := 0; !strings.HasPrefix(said, "hit"); i++ {
		if i > 4*trial.RestRequests {
			t.Fatalf("it is not tried again: %s", said)
		}
		said = ask(1 + i).header
	}
	if got := ask(0); got.status != 200 || len(r.front.servedFor("").status().Resting) > 0 {
		t.Errorf("afterwards: %s", got.header)
	}
}

// Adapters that each request names itself are no reason for the server to throw away what is restored, after kills and in turns; and a default that is
// said aloud is none.
func TestAdaptersByRequest(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "model.gguf")
	write(t, model, string(ggufgen.WithText(ggufgen.LLaMA(1, 2, 64))))
	args := []string{"-c", "2048", "-np", "1", "-m", model, "--lora-init-without-apply"}
	for i, name := range []string{"a", "b"} {
		path := filepath.Join(dir, name+".gguf")
		write(t, path, string(ggufgen.LoRA("llama", uint64(7+i), 0.5, ggufgen.LoRATarget{Name: "blk.0.attn_k.weight", In: 128, Out: 128})))
		args = append(args, "--lora", path)
	}
	r := start(t, Options{}, args...)
	scale := func(a, b float64) []object { return []object{{"id": 0, "scale": a}, {"id": 1, "scale": b}} }
	text := map[string]string{}
	for round := range 3 {
		for _, c := range []struct {
			path string
			lora any
		}{{"/completion", scale(1, 0)}, {"/completion", scale(0, 1)}, {"/completion", nil}, {"/completion", scale(0.5, 0.5)}, {"/completion", []object{}}} {
			body := object{"prompt": sawtooth(300), "n_predict": 8, "temperature": 0}
			if c.lora != nil {
				body["lora"] = c.lora
			}
			got := r.ask(c.path, body)
			r.saved()
			name := fmt.Sprint(c.lora)
			if round == 0 {
				text[name] = got.text
				continue
			}
			var n int
			if _, err := fmt.Sscanf(strings.TrimPrefix(got.header, "hit; "), "tokens=%d", &n); strings.HasPrefix(got.header, "hit") && (err != nil || got.a.Cached < n) {
				t.Errorf("round %d with %v: the answer says %q, and %d tokens were reused", round, c.lora, got.header, got.a.Cached)
			}
			if got.a.Cached < 290 || got.text != text[name] {
				t.Errorf("round %d with %v: %d tokens were reused (%s); %q, before %q", round, c.lora, got.a.Cached, got.header, got.text, text[name])
			}
		}
		r.killServer()
	}
	if text[fmt.Sprint(scale(1, 0))] == text["<nil>"] {
		t.Error("an adapter changes nothing")
	}
	if n := r.front.Figures().Unused; n > 0 {
		t.Errorf("%d tokens were restored for nothing", n)
	}
}

// A server that computes again what it was given is left alone for such requests, and tried again; other requests are helped meanwhile. The answer says
// why.
func TestNotReused(t *testing.T) {
	r := start(t, Options{}, "-c", "2048", "-np", "1")
	var forgets atomic.Bool
	r.between(func(req *http.Request) {
		if forgets.Load() && req.URL.Path == "/completion" && req.Method == http.MethodPost {
			if err := r.front.apiOf("").Erase(req.Context(), 0); err != nil {
				t.Error(err)
			}
		}
	})
	ask := func(i int, more string) string {
		t.Helper()
		body := story(fmt.Sprint("Turn about ", i%2, more), 8)
		if more != "" {
			body["grammar"] = more
		}
		got := r.ask("/completion", body)
		r.saved()
		return got.header
	}
	const grammar = "root ::= [a-z ]+"
	for i := range 2 {
		ask(i, "")
		ask(i, grammar)
	}
	forgets.Store(true)
	for i := range trial.MaxFailed {
		ask(i, grammar)
	}
	if said := ask(0, grammar) + ask(1, grammar); !strings.Contains(said, "miss; reason=not_reused") {
		t.Errorf("after %d restores for nothing: %s", trial.MaxFailed, said)
	}
	forgets.Store(false)
	if m := r.front.servedFor("").status(); len(m.Resting) != 1 || m.Resting[0].Reason != "not_reused" || m.Resting[0].Case != "completion with grammar" {
		t.Errorf("the status says %+v", m.Resting)
	}
	if said := ask(0, "") + ask(1, ""); !strings.Contains(said, "hit") {
		t.Errorf("other requests: %s", said)
	}
	for i := 0; !strings.HasPrefix(ask(i, grammar), "hit"); i++ {
		if i > 2*trial.RestRequests {
			t.Fatal("it is not tried again")
		}
	}
	if said := ask(0, grammar) + ask(1, grammar); !strings.Contains(said, "hit") || len(r.front.servedFor("").status().Resting) > 0 {
		t.Errorf("afterwards: %s", said)
	}
}

// A template whose text changes while a request waits, because it says the time, ends nothing; and what differs for one kind of requests
// is left alone for that kind.
func TestPromptsThatDiffer(t *testing.T) {
	template, err := filepath.Abs("testdata/tools.jinja")
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, Options{}, "-c", "4096", "-np", "1", "--jinja", "--chat-template-file", template)
	clock := 0
	r.between(func(req *http.Request) {
		if clock > 0 && strings.HasSuffix(req.URL.Path, "/chat/completions") { // the server sees another time than the front
			clock--
			body := readBody(t, req)
			setBody(req, []byte(strings.Replace(string(body), "It is noon", "It is half past eleven", 1)))
		}
	})
	chat := func(tools bool) reply {
		body := object{"messages": []object{{"role": "user", "content": "It is noon. " + story("Chat", 8)["prompt"].(string)}}, "max_tokens": 4, "temperature": 0}
		if tools {
			body["tools"] = []object{{"type": "function", "function": object{"name": "read", "parameters": object{"type": "object"}}}}
		}
		got := r.ask("/v1/chat/completions", body)
		r.saved()
		return got
	}
	for range 3 {
		clock = 1
		chat(false)
		if got := chat(false); got.status != 200 || strings.HasPrefix(got.header, "pass") {
			t.Fatalf("after one prompt of another length: %d %s", got.status, got.header)
		}
	}
	clock = trial.MaxFailed
	for range trial.MaxFailed {
		chat(true)
	}
	if got := chat(true); got.header != "pass; reason=rendered_otherwise" {
		t.Errorf("after %d in a row: %s", trial.MaxFailed, got.header)
	}
	if m := r.front.servedFor("").status(); len(m.Resting) != 1 || m.Resting[0].Case != "chat with tools" || m.Resting[0].Reason != "rendered_otherwise" {
		t.Errorf("the status says %+v", m.Resting)
	}
	if got := chat(false); strings.HasPrefix(got.header, "pass") {
		t.Errorf("a chat without tools: %s", got.header)
	}
	for i := 0; strings.HasPrefix(chat(true).header, "pass"); i++ {
		if i > trial.RestRequests {
			t.Fatal("chats with tools pass for good")
		}
	}
	if got := chat(true); !strings.HasPrefix(got.header, "slot") && !strings.HasPrefix(got.header, "hit") {
		t.Errorf("a chat with tools, afterwards: %s", got.header)
	}
}

func readBody(t *testing.T, r *http.Request) []byte {
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

// What the server treats as a default, and what it reads as no field at all, is kept, and answered as the server alone answers it.
func TestDefaultsSaidAloud(t *testing.T) {
	for _, name := range []string{"DORMOUSE_LLAMA_SERVER", "DORMOUSE_LLAMA_SERVER_OTHER"} {
		t.Run(name, func(t *testing.T) {
			other(t, name)
			r := start(t, Options{}, "-c", "2048", "-np", "1")
			alone := plain(t, "-c", "2048", "-np", "1")
			text := story("Said aloud", 10)["prompt"].(string)
			prompt := fmt.Sprintf(`"prompt":%q,"n_predict":4,"temperature":0`, text)
			chat := fmt.Sprintf(`"messages":[{"role":"user","content":%q}],"max_tokens":4,"temperature":0`, text)
			for _, c := range []struct{ path, body string }{
				{"/completion", `{` + prompt + `,"id_slot":-1}`},
				{"/completion", `{` + prompt + `,"id_slot":-1.0}`},
				{"/completion", `{` + prompt + `,"id_slot":"0"}`},
				{"/completion", `{` + prompt + `,"n_cache_reuse":0}`},
				{"/completion", `{` + prompt + `,"cache_prompt":true,"n":1,"n_cmpl":null,"best_of":1,"lora":[],"n_cache_reuse":null,"id_slot":null}`},
				{"/completion", `{` + prompt + `,"n_cmpl":1,"n":2}`},
				{"/completion", "\xef\xbb\xbf{" + prompt + `}`},
				{"/completion", fmt.Sprintf(`{"prompt":[{"prompt_string":%q}],"n_predict":4,"temperature":0}`, text)},
				{"/completion", fmt.Sprintf(`{"prompt":{"prompt_string":%q},"n_predict":4,"temperature":0}`, text)},
				{"/completion", fmt.Sprintf(`{"prompt":[%q],"n_predict":4,"temperature":0}`, text)},
				{"/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":4,"temperature":0,"n":1,"id_slot":-1,"best_of":1}`, text)},
				{"/v1/chat/completions", `{` + chat + `,"id_slot":-1,"n_cache_reuse":0,"cache_prompt":true,"n":1,"tools":[],"tool_choice":null,"response_format":null,"chat_template_kwargs":null}`},
				{"/v1/chat/completions", "\xef\xbb\xbf{" + chat + `}`},
				{"/v1/messages", `{` + chat + `,"id_slot":-1,"cache_prompt":false,"n":2,"tools":[],"tool_choice":null,"system":null,"thinking":null,"chat_template_kwargs":null}`},
				{"/v1/responses", fmt.Sprintf(`{"input":%q,"max_output_tokens":4,"temperature":0,"id_slot":-1,"n":1,"tools":[],"instructions":null,"reasoning":null,"previous_response_id":null,"conversation":null,"prompt":null}`, text)},
			} {
				got := r.ask(c.path, c.body)
				want := ask(t, context.Background(), alone, c.path, c.body)
				if got.status != 200 || got.status != want.status || got.text != want.text {
					t.Errorf("%s %.200s: %d %q (%s), alone %d %q", c.path, c.body, got.status, got.text, got.header, want.status, want.text)
				}
				if strings.HasPrefix(got.header, "pass") {
					t.Errorf("%s %s: %s", c.path, strings.ReplaceAll(c.body, text, "…"), got.header)
				}
				r.saved()
				if m := r.front.servedFor("").status(); len(m.Resting) > 0 {
					t.Fatalf("%s %s: it rests: %+v", c.path, strings.ReplaceAll(c.body, text, "…"), m.Resting)
				}
			}
		})
	}
}
