package models_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// A restore that takes long once, because a disk spins up, say, ends nothing; and the answer says why nothing was restored where that is so.
func TestSlowRestore(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, "-c", "2048", "-np", "1")
	var hold atomic.Int64
	r.Between(func(req *http.Request) {
		if req.URL.Query().Get("action") == "restore" {
			time.Sleep(time.Duration(hold.Load()))
		}
	})
	ask := func(i int) rig.Reply {
		t.Helper()
		got := r.Ask("/completion", rig.Story(fmt.Sprint("Turn about ", i%2), 14))
		r.Saved()
		return got
	}
	for i := range 4 {
		ask(i)
	}
	hold.Store(int64(2 * time.Second))
	if got := ask(0); !strings.HasPrefix(got.Header, "hit") {
		t.Fatalf("the slow one: %s", got.Header)
	}
	hold.Store(0)
	for i := range 6 {
		if got := ask(1 + i); !strings.HasPrefix(got.Header, "hit") {
			t.Errorf("restore %d after a slow one: %s", i, got.Header)
		}
	}
	hold.Store(int64(2 * time.Second)) // and now always
	said := ""
	for i := 0; i < 20 && !strings.HasPrefix(said, "miss"); i++ {
		said = ask(1 + i).Header
	}
	if !strings.HasPrefix(said, "miss; reason=too_slow") {
		t.Errorf("where each restore takes long: %s", said)
	}
	if m := r.Model(); len(m.Resting) != 1 || m.Resting[0].Reason != "too_slow" {
		t.Errorf("the status says %+v", m.Resting)
	}
	hold.Store(0)
	for i := 0; !strings.HasPrefix(said, "hit"); i++ {
		if i > 4*trial.RestRequests {
			t.Fatalf("it is not tried again: %s", said)
		}
		said = ask(1 + i).Header
	}
	if got := ask(0); got.Status != 200 || len(r.Model().Resting) > 0 {
		t.Errorf("afterwards: %s", got.Header)
	}
}

// Adapters that each request names itself are no reason for the server to throw away what is restored, after kills and in turns; and a default that is
// said aloud is none.
func TestAdaptersByRequest(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "model.gguf")
	rig.WriteFile(t, model, string(ggufgen.WithText(ggufgen.LLaMA(1, 2, 64))))
	args := []string{"-c", "2048", "-np", "1", "-m", model, "--lora-init-without-apply"}
	for i, name := range []string{"a", "b"} {
		path := filepath.Join(dir, name+".gguf")
		rig.WriteFile(t, path, string(ggufgen.LoRA("llama", uint64(7+i), 0.5, ggufgen.LoRATarget{Name: "blk.0.attn_k.weight", In: 128, Out: 128})))
		args = append(args, "--lora", path)
	}
	r := rig.Start(t, llamaserver.Options{}, args...)
	scale := func(a, b float64) []rig.Object { return []rig.Object{{"id": 0, "scale": a}, {"id": 1, "scale": b}} }
	text := map[string]string{}
	for round := range 3 {
		for _, c := range []struct {
			path string
			lora any
		}{{"/completion", scale(1, 0)}, {"/completion", scale(0, 1)}, {"/completion", nil}, {"/completion", scale(0.5, 0.5)}, {"/completion", []rig.Object{}}} {
			body := rig.Object{"prompt": rig.Sawtooth(300), "n_predict": 8, "temperature": 0}
			if c.lora != nil {
				body["lora"] = c.lora
			}
			got := r.Ask(c.path, body)
			r.Saved()
			name := fmt.Sprint(c.lora)
			if round == 0 {
				text[name] = got.Text
				continue
			}
			var n int
			if _, err := fmt.Sscanf(strings.TrimPrefix(got.Header, "hit; "), "tokens=%d", &n); strings.HasPrefix(got.Header, "hit") && (err != nil || got.A.Cached < n) {
				t.Errorf("round %d with %v: the answer says %q, and %d tokens were reused", round, c.lora, got.Header, got.A.Cached)
			}
			if got.A.Cached < 290 || got.Text != text[name] {
				t.Errorf("round %d with %v: %d tokens were reused (%s); %q, before %q", round, c.lora, got.A.Cached, got.Header, got.Text, text[name])
			}
		}
		r.KillServer()
	}
	if text[fmt.Sprint(scale(1, 0))] == text["<nil>"] {
		t.Error("an adapter changes nothing")
	}
	if n := r.Front.Figures().Unused; n > 0 {
		t.Errorf("%d tokens were restored for nothing", n)
	}
}

// A server that computes again what it was given is left alone for such requests, and tried again; other requests are helped meanwhile. The answer says
// why.
func TestNotReused(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{}, "-c", "2048", "-np", "1")
	var forgets atomic.Bool
	r.Between(func(req *http.Request) {
		if forgets.Load() && req.URL.Path == "/completion" && req.Method == http.MethodPost {
			if err := (&api.Client{Base: r.Base, Client: http.DefaultClient}).Erase(req.Context(), 0); err != nil {
				t.Error(err)
			}
		}
	})
	ask := func(i int, more string) string {
		t.Helper()
		body := rig.Story(fmt.Sprint("Turn about ", i%2, more), 8)
		if more != "" {
			body["grammar"] = more
		}
		got := r.Ask("/completion", body)
		r.Saved()
		return got.Header
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
	if m := r.Model(); len(m.Resting) != 1 || m.Resting[0].Reason != "not_reused" || m.Resting[0].Case != "completion with grammar" {
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
	if said := ask(0, grammar) + ask(1, grammar); !strings.Contains(said, "hit") || len(r.Model().Resting) > 0 {
		t.Errorf("afterwards: %s", said)
	}
}

// A template whose text changes while a request waits, because it says the time, ends nothing; and what differs for one kind of requests
// is left alone for that kind.
func TestPromptsThatDiffer(t *testing.T) {
	template, err := filepath.Abs(rig.Testdata("tools.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	r := rig.Start(t, llamaserver.Options{}, "-c", "4096", "-np", "1", "--jinja", "--chat-template-file", template)
	clock := 0
	r.Between(func(req *http.Request) {
		if clock > 0 && strings.HasSuffix(req.URL.Path, "/chat/completions") { // the server sees another time than the front
			clock--
			body := rig.ReadBody(t, req)
			rig.ResetBody(req, []byte(strings.Replace(string(body), "It is noon", "It is half past eleven", 1)))
		}
	})
	chat := func(tools bool) rig.Reply {
		body := rig.Object{"messages": []rig.Object{{"role": "user", "content": "It is noon. " + rig.Story("Chat", 8)["prompt"].(string)}}, "max_tokens": 4, "temperature": 0}
		if tools {
			body["tools"] = []rig.Object{{"type": "function", "function": rig.Object{"name": "read", "parameters": rig.Object{"type": "object"}}}}
		}
		got := r.Ask("/v1/chat/completions", body)
		r.Saved()
		return got
	}
	for range 3 {
		clock = 1
		chat(false)
		if got := chat(false); got.Status != 200 || strings.HasPrefix(got.Header, "pass") {
			t.Fatalf("after one prompt of another length: %d %s", got.Status, got.Header)
		}
	}
	clock = trial.MaxFailed
	for range trial.MaxFailed {
		chat(true)
	}
	if got := chat(true); got.Header != "pass; reason=rendered_otherwise" {
		t.Errorf("after %d in a row: %s", trial.MaxFailed, got.Header)
	}
	if m := r.Model(); len(m.Resting) != 1 || m.Resting[0].Case != "chat with tools" || m.Resting[0].Reason != "rendered_otherwise" {
		t.Errorf("the status says %+v", m.Resting)
	}
	if got := chat(false); strings.HasPrefix(got.Header, "pass") {
		t.Errorf("a chat without tools: %s", got.Header)
	}
	for i := 0; strings.HasPrefix(chat(true).Header, "pass"); i++ {
		if i > trial.RestRequests {
			t.Fatal("chats with tools pass for good")
		}
	}
	if got := chat(true); !strings.HasPrefix(got.Header, "slot") && !strings.HasPrefix(got.Header, "hit") {
		t.Errorf("a chat with tools, afterwards: %s", got.Header)
	}
}

// What the server treats as a default, and what it reads as no field at all, is kept, and answered as the server alone answers it.
func TestDefaultsSaidAloud(t *testing.T) {
	for _, name := range []string{"DORMOUSE_LLAMA_SERVER", "DORMOUSE_LLAMA_SERVER_OTHER"} {
		t.Run(name, func(t *testing.T) {
			rig.UseServer(t, name)
			r := rig.Start(t, llamaserver.Options{}, "-c", "2048", "-np", "1")
			alone := rig.Plain(t, "-c", "2048", "-np", "1")
			text := rig.Story("Said aloud", 10)["prompt"].(string)
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
				got := r.Ask(c.path, c.body)
				want := rig.Ask(t, context.Background(), alone, c.path, c.body)
				if got.Status != 200 || got.Status != want.Status || got.Text != want.Text {
					t.Errorf("%s %.200s: %d %q (%s), alone %d %q", c.path, c.body, got.Status, got.Text, got.Header, want.Status, want.Text)
				}
				if strings.HasPrefix(got.Header, "pass") {
					t.Errorf("%s %s: %s", c.path, strings.ReplaceAll(c.body, text, "…"), got.Header)
				}
				r.Saved()
				if m := r.Model(); len(m.Resting) > 0 {
					t.Fatalf("%s %s: it rests: %+v", c.path, strings.ReplaceAll(c.body, text, "…"), m.Resting)
				}
			}
		})
	}
}
