package keys_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/causes"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// The header says at which token a prompt parts from all that came before, and in which part of the request that is: for the templates that put the system
// prompt into a turn of its own, with the tools behind it, and for the one that puts it into the first message.
func TestPartsOfChats(t *testing.T) {
	tools := []rig.Object{rig.Tool("read", "reads a file"), rig.Tool("write", "writes a file to the disk")}
	other := []rig.Object{rig.Tool("read", "reads a file"), rig.Tool("write", "writes a file to a tape")}
	for template, more := range map[string]map[string]rig.Object{
		"qwen2.5.jinja": {
			"tools":     {"tools": other},
			"message_3": {"tools": tools, "second": "Hello. What was it?"},
			"template":  {"tools": tools, "system": nil}, // it has a system prompt of its own
		},
		"smollm2.jinja": {
			"message_3": {"second": "Hello. What was it?"},
		},
		"gemma3.jinja": {
			"message_3": {"second": " Hello. What was it?  "}, // the template cuts spaces
		},
	} {
		t.Run(template, func(t *testing.T) {
			r := rig.Templated(t, llamaserver.Options{}, template)
			first := rig.Object{}
			if template == "qwen2.5.jinja" {
				first["tools"] = tools
			}
			var before [][]int32
			ask := func(body rig.Object) rig.Reply {
				got := r.Ask("/v1/chat/completions", body)
				if got.Status != 200 {
					t.Fatalf("%d %s", got.Status, got.Body)
				}
				return got
			}
			send := func(part string, say rig.Object) {
				t.Helper()
				all := maps.Clone(first)
				maps.Copy(all, say)
				body := rig.Talk(all)
				tokens := r.TokensOf("/v1/chat/completions", body)
				want := rig.FirstDifference(before, tokens)
				got := ask(body)
				f := rig.FieldsOf(got.Header)
				n, err := strconv.Atoi(f["parted"])
				if want < kv.OpeningTokens {
					n, err = want, nil
					if f["parted"] != "nothing_in_common" || f["age"] != "" {
						t.Errorf("%s: %q, %d tokens are common", part, got.Header, want)
					}
				}
				if err != nil || n != want || f["part"] != part {
					t.Errorf("%q, expected token %d of %d, in %s", got.Header, want, len(tokens), part)
				}
				p := r.LastParted(len(before) + 1)
				if p == nil || p.Token != want || strings.ReplaceAll(p.Part, " ", "_") != part || p.Common != want {
					t.Errorf("%s: the figures have %+v", part, p)
				}
				before = append(before, tokens)
			}
			if got := ask(rig.Talk(first)); strings.Contains(got.Header, "parted") {
				t.Errorf("the first of all: %q", got.Header)
			}
			before = append(before, r.TokensOf("/v1/chat/completions", rig.Talk(first)))
			send("system_prompt", rig.Object{"system": "You help the little cat. The folder is /home/two and you are kind."})
			send("message_2", rig.Object{"first": "Ho"})
			for part, say := range more {
				send(part, say)
			}
			if got := ask(rig.Talk(first)); strings.Contains(got.Header, "parted") {
				t.Errorf("the first once more: %q", got.Header)
			}
			if got := r.Log.String(); !strings.Contains(got, `level=INFO msg="a prompt`) || strings.Contains(got, "/home/two and") {
				t.Error("the log says too little, or too much")
			}
		})
	}
}

// A system prompt that begins as the template's own does parts from it in the template's text.
func TestTemplatesOwnText(t *testing.T) {
	r := rig.Templated(t, llamaserver.Options{}, "smollm2.jinja")
	r.Ask("/v1/chat/completions", rig.Talk(rig.Object{"system": "You are a helpful AI assistant named Bob"}))
	got := r.Ask("/v1/chat/completions", rig.Talk(rig.Object{"system": nil}))
	if f := rig.FieldsOf(got.Header); f["part"] != "template" {
		t.Errorf("%q", got.Header)
	}
	got = r.Ask("/v1/chat/completions", rig.Talk(rig.Object{"system": "You are a helpful AI assistant named SmolLM, trained at home"}))
	if f := rig.FieldsOf(got.Header); f["part"] != "system_prompt" {
		t.Errorf("%q", got.Header)
	}
}

// Messages are numbered as the client counts them, whatever the server makes of them; what is no chat has one part.
func TestPartsByEndpoint(t *testing.T) {
	system := strings.Repeat("You help the little cat. ", 4)
	schema := rig.Object{"type": "object", "properties": rig.Object{"path": rig.Object{"type": "string"}}}
	anthropic := func(result, about string) rig.Object {
		return rig.Object{
			"system": []rig.Object{{"type": "text", "text": system}}, "max_tokens": 1, "temperature": 0,
			"tools": []rig.Object{{"name": "read", "description": about, "input_schema": schema}},
			"messages": []rig.Object{
				{"role": "user", "content": "Look."},
				{"role": "assistant", "content": []rig.Object{{"type": "tool_use", "id": "a", "name": "read", "input": rig.Object{"path": "x"}}, {"type": "tool_use", "id": "b", "name": "read", "input": rig.Object{"path": "y"}}}},
				{"role": "user", "content": []rig.Object{{"type": "tool_result", "tool_use_id": "a", "content": "Once"}, {"type": "tool_result", "tool_use_id": "b", "content": result}}},
				{"role": "assistant", "content": "I saw it."},
				{"role": "user", "content": strings.Repeat(rig.LongTurn, 8)},
			},
		}
	}
	openai := func(output, about string) rig.Object {
		return rig.Object{
			"instructions": system, "max_output_tokens": 1, "temperature": 0, "store": false,
			"tools": []rig.Object{{"type": "function", "name": "read", "description": about, "parameters": schema}},
			"input": []rig.Object{
				{"type": "message", "role": "user", "content": []rig.Object{{"type": "input_text", "text": "Look."}}},
				{"type": "message", "role": "assistant", "content": []rig.Object{{"type": "output_text", "text": "I look."}}},
				{"type": "function_call", "call_id": "a", "name": "read", "arguments": `{"path":"x"}`},
				{"type": "function_call_output", "call_id": "a", "output": output},
				{"type": "message", "role": "user", "content": []rig.Object{{"type": "input_text", "text": strings.Repeat(rig.LongTurn, 8)}}},
			},
		}
	}
	text := func(name string) rig.Object {
		return rig.Object{"prompt": strings.Repeat("Once upon a time there was a cat. ", 4) + name + strings.Repeat(rig.LongTurn, 4), "n_predict": 1, "max_tokens": 1, "temperature": 0}
	}
	r := rig.Templated(t, llamaserver.Options{}, "qwen2.5.jinja")
	for _, c := range []struct {
		path         string
		before, body rig.Object
		part         string
	}{
		{"/v1/messages", anthropic("upon a time", "reads a file"), anthropic("a time ago", "reads a file"), "message_3"},
		{"/v1/messages", anthropic("upon a time", "reads a file"), anthropic("upon a time", "reads a book"), "tools"},
		{"/v1/responses", openai("upon a time", "reads a file"), openai("a time ago", "reads a file"), "message_4"},
		{"/v1/responses", openai("upon a time", "reads a file"), openai("upon a time", "reads a tape"), "tools"},
		{"/completion", text("One"), text("Two"), "prompt"},
		{"/v1/completions", text("Red"), text("Sun"), "prompt"},
	} {
		if got := r.Ask(c.path, c.before); got.Status != 200 {
			t.Fatalf("%s: %d %s", c.path, got.Status, got.Body)
		}
		got := r.Ask(c.path, c.body)
		if f := rig.FieldsOf(got.Header); f["part"] != c.part {
			t.Errorf("%s: %q, expected %s", c.path, got.Header, c.part)
		}
	}
}

// A stream begins before the answer: it says the token, and the figures say the rest.
func TestStreamsSayTheToken(t *testing.T) {
	r := rig.Templated(t, llamaserver.Options{}, "qwen2.5.jinja")
	r.Ask("/v1/chat/completions", rig.Talk(nil))
	body := rig.Talk(rig.Object{"system": "You help the little cat. The folder is /home/two and you are kind."})
	want := rig.FirstDifference([][]int32{r.TokensOf("/v1/chat/completions", rig.Talk(nil))}, r.TokensOf("/v1/chat/completions", body))
	body["stream"] = true
	got := r.Ask("/v1/chat/completions", body)
	if f := rig.FieldsOf(got.Header); f["parted"] != fmt.Sprint(want) || f["part"] != "" {
		t.Errorf("%q, expected token %d", got.Header, want)
	}
	if p := r.LastParted(2); p == nil || p.Part != "system prompt" || p.Token != want {
		t.Errorf("the figures have %+v", p)
	}
}

// Where several people have keys, none hears how old the others' prompts are, and no text is in an answer, the log or the figures. With --scope-by-key
// nobody parts from what another one has said.
func TestPartedTellsNothingOfOthers(t *testing.T) {
	for _, byKey := range []bool{false, true} {
		t.Run(fmt.Sprint("by key ", byKey), func(t *testing.T) {
			r := rig.Templated(t, llamaserver.Options{ScopeByKey: byKey, Explain: true}, "qwen2.5.jinja", "--api-key", "one,two")
			ask := func(key string, body rig.Object) string {
				t.Helper()
				b, _ := json.Marshal(body)
				req, _ := http.NewRequest(http.MethodPost, r.URL+"/v1/chat/completions", strings.NewReader(string(b)))
				req.Header.Set("Authorization", "Bearer "+key)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if resp.StatusCode != 200 {
					t.Fatal(resp.Status)
				}
				return resp.Header.Get(llamaserver.Header)
			}
			secret := "the secret word is Zebra"
			ask("one", rig.Talk(rig.Object{"first": "The day is red and " + secret}))
			r.Saved()
			time.Sleep(1100 * time.Millisecond) // an age that could be told
			said := ask("two", rig.Talk(rig.Object{"first": "The day is red and the cat is not"}))
			f := rig.FieldsOf(said)
			if f["age"] != "" || strings.Contains(said, "Zebra") {
				t.Errorf("%q", said)
			}
			if byKey != (f["parted"] == "") {
				t.Errorf("by key %v: %q", byKey, said)
			}
			all, err := r.Front.Explain()
			if err != nil || byKey && len(all) > 0 || !byKey && (len(all) != 1 || !strings.Contains(all[0].Theirs, "secret")) {
				t.Errorf("by key %v, at the control socket: %+v, %v", byKey, all, err)
			}
			// One's own is compared all the same.
			if f := rig.FieldsOf(ask("one", rig.Talk(rig.Object{"first": "The day is red and the dog is too"}))); f["parted"] == "" || f["age"] != "" {
				t.Errorf("of the same key: %v", f)
			}
			for _, q := range r.Front.Figures().Recent {
				if q.Parted != nil && (q.Parted.Age != 0 || strings.Contains(fmt.Sprintf("%+v", *q.Parted), "Zebra")) {
					t.Errorf("the figures have %+v", q.Parted)
				}
			}
			if strings.Contains(r.Log.String(), "Zebra") {
				t.Error("the log has a text")
			}
		})
	}
}

// A known cause is named, with what helps.
func TestPartedNamesTheCause(t *testing.T) {
	r := rig.Templated(t, llamaserver.Options{}, "smollm2.jinja")
	at := func(date string) rig.Object {
		return rig.Talk(rig.Object{"system": "You help the little cat.\nToday's date: " + date + "\nYou are kind."})
	}
	r.Ask("/v1/chat/completions", at("2026-11-27"))
	r.Ask("/v1/chat/completions", at("2026-12-01"))
	if p := r.LastParted(2); p == nil || p.Cause != causes.Clock || p.Advice == "" {
		t.Errorf("%+v", p)
	}
	if got := r.Log.String(); !strings.Contains(got, "cause="+causes.Clock) || strings.Contains(got, "2026-12-01") {
		t.Error("the log says too little, or too much")
	}
}
