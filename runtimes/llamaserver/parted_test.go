package llamaserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/causes"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// templated starts a server with a chat template of testdata.
func templated(t *testing.T, o Options, template string, args ...string) *rig {
	t.Helper()
	path, err := filepath.Abs("testdata/" + template)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, o, append([]string{"-c", "8192", "-np", "1", "--override-kv", "llama.context_length=int:8192", "--jinja", "--chat-template-file", path}, args...)...)
}

// tokensOf are the tokens that the front makes of a request.
func (r *rig) tokensOf(path string, body object) []int32 {
	r.t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	req, err := request.Parse(request.EndpointOf(path, ""), b)
	if err != nil {
		r.t.Fatal(err)
	}
	tokens, err := req.Render(r.t.Context(), r.front.servedFor("").api)
	if err != nil {
		r.t.Fatal(err)
	}
	return tokens
}

// fieldsOf are what X-Dormouse says of the place where a prompt parted.
func fieldsOf(header string) map[string]string {
	out := map[string]string{}
	for _, f := range strings.Split(header, "; ") {
		if k, v, ok := strings.Cut(f, "="); ok {
			out[k] = v
		}
	}
	return out
}

// lastParted is what the figures say of the last of n requests.
func (r *rig) lastParted(n int) *figures.Parted {
	r.t.Helper()
	var list []figures.Request
	r.eventually(func() bool { list = r.front.Figures().Recent; return len(list) >= n })
	return list[0].Parted
}

// firstDifference is at how many tokens a prompt parts from those before it.
func firstDifference(before [][]int32, p []int32) (most int) {
	for _, q := range before {
		n := 0
		for n < min(len(p), len(q)) && p[n] == q[n] {
			n++
		}
		most = max(most, n)
	}
	return most
}

const longTurn = "Tell me of the little dog that ran to the park, and saw a big red ball, and a tree. It was a sunny day, and the dog was happy. "

// talk is a chat of some turns, with what a test says in some places.
func talk(more object) object {
	say := object{"system": "You help the little cat. The folder is /home/one and you are kind.", "first": "Hi", "second": "Hello. What is it?", "third": strings.Repeat(longTurn, 8)}
	maps.Copy(say, more)
	var messages []object
	if say["system"] != nil {
		messages = append(messages, object{"role": "system", "content": say["system"]})
	}
	messages = append(messages, object{"role": "user", "content": say["first"]}, object{"role": "assistant", "content": say["second"]}, object{"role": "user", "content": say["third"]})
	body := object{"messages": messages, "max_tokens": 1, "temperature": 0}
	if say["tools"] != nil {
		body["tools"] = say["tools"]
	}
	return body
}

func tool(name, about string) object {
	return object{"type": "function", "function": object{"name": name, "description": about, "parameters": object{"type": "object", "properties": object{"path": object{"type": "string"}}}}}
}

// The header says at which token a prompt parts from all that came before, and in which part of the request that is: for the templates that put the system
// prompt into a turn of its own, with the tools behind it, and for the one that puts it into the first message.
func TestPartsOfChats(t *testing.T) {
	tools := []object{tool("read", "reads a file"), tool("write", "writes a file to the disk")}
	other := []object{tool("read", "reads a file"), tool("write", "writes a file to a tape")}
	for template, more := range map[string]map[string]object{
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
			r := templated(t, Options{}, template)
			first := object{}
			if template == "qwen2.5.jinja" {
				first["tools"] = tools
			}
			var before [][]int32
			ask := func(body object) reply {
				got := r.ask("/v1/chat/completions", body)
				if got.status != 200 {
					t.Fatalf("%d %s", got.status, got.body)
				}
				return got
			}
			send := func(part string, say object) {
				t.Helper()
				all := maps.Clone(first)
				maps.Copy(all, say)
				body := talk(all)
				tokens := r.tokensOf("/v1/chat/completions", body)
				want := firstDifference(before, tokens)
				got := ask(body)
				f := fieldsOf(got.header)
				n, err := strconv.Atoi(f["parted"])
				if want < kv.OpeningTokens {
					n, err = want, nil
					if f["parted"] != "nothing_in_common" || f["age"] != "" {
						t.Errorf("%s: %q, %d tokens are common", part, got.header, want)
					}
				}
				if err != nil || n != want || f["part"] != part {
					t.Errorf("%q, expected token %d of %d, in %s", got.header, want, len(tokens), part)
				}
				p := r.lastParted(len(before) + 1)
				if p == nil || p.Token != want || strings.ReplaceAll(p.Part, " ", "_") != part || p.Common != want {
					t.Errorf("%s: the figures have %+v", part, p)
				}
				before = append(before, tokens)
			}
			if got := ask(talk(first)); strings.Contains(got.header, "parted") {
				t.Errorf("the first of all: %q", got.header)
			}
			before = append(before, r.tokensOf("/v1/chat/completions", talk(first)))
			send("system_prompt", object{"system": "You help the little cat. The folder is /home/two and you are kind."})
			send("message_2", object{"first": "Ho"})
			for part, say := range more {
				send(part, say)
			}
			if got := ask(talk(first)); strings.Contains(got.header, "parted") {
				t.Errorf("the first once more: %q", got.header)
			}
			if got := r.log.String(); !strings.Contains(got, `level=INFO msg="a prompt`) || strings.Contains(got, "/home/two and") {
				t.Error("the log says too little, or too much")
			}
		})
	}
}

// A system prompt that begins as the template's own does parts from it in the template's text.
func TestTemplatesOwnText(t *testing.T) {
	r := templated(t, Options{}, "smollm2.jinja")
	r.ask("/v1/chat/completions", talk(object{"system": "You are a helpful AI assistant named Bob"}))
	got := r.ask("/v1/chat/completions", talk(object{"system": nil}))
	if f := fieldsOf(got.header); f["part"] != "template" {
		t.Errorf("%q", got.header)
	}
	got = r.ask("/v1/chat/completions", talk(object{"system": "You are a helpful AI assistant named SmolLM, trained at home"}))
	if f := fieldsOf(got.header); f["part"] != "system_prompt" {
		t.Errorf("%q", got.header)
	}
}

// Messages are numbered as the client counts them, whatever the server makes of them; what is no chat has one part.
func TestPartsByEndpoint(t *testing.T) {
	system := strings.Repeat("You help the little cat. ", 4)
	schema := object{"type": "object", "properties": object{"path": object{"type": "string"}}}
	anthropic := func(result, about string) object {
		return object{
			"system": []object{{"type": "text", "text": system}}, "max_tokens": 1, "temperature": 0,
			"tools": []object{{"name": "read", "description": about, "input_schema": schema}},
			"messages": []object{
				{"role": "user", "content": "Look."},
				{"role": "assistant", "content": []object{{"type": "tool_use", "id": "a", "name": "read", "input": object{"path": "x"}}, {"type": "tool_use", "id": "b", "name": "read", "input": object{"path": "y"}}}},
				{"role": "user", "content": []object{{"type": "tool_result", "tool_use_id": "a", "content": "Once"}, {"type": "tool_result", "tool_use_id": "b", "content": result}}},
				{"role": "assistant", "content": "I saw it."},
				{"role": "user", "content": strings.Repeat(longTurn, 8)},
			},
		}
	}
	openai := func(output, about string) object {
		return object{
			"instructions": system, "max_output_tokens": 1, "temperature": 0, "store": false,
			"tools": []object{{"type": "function", "name": "read", "description": about, "parameters": schema}},
			"input": []object{
				{"type": "message", "role": "user", "content": []object{{"type": "input_text", "text": "Look."}}},
				{"type": "message", "role": "assistant", "content": []object{{"type": "output_text", "text": "I look."}}},
				{"type": "function_call", "call_id": "a", "name": "read", "arguments": `{"path":"x"}`},
				{"type": "function_call_output", "call_id": "a", "output": output},
				{"type": "message", "role": "user", "content": []object{{"type": "input_text", "text": strings.Repeat(longTurn, 8)}}},
			},
		}
	}
	text := func(name string) object {
		return object{"prompt": strings.Repeat("Once upon a time there was a cat. ", 4) + name + strings.Repeat(longTurn, 4), "n_predict": 1, "max_tokens": 1, "temperature": 0}
	}
	r := templated(t, Options{}, "qwen2.5.jinja")
	for _, c := range []struct {
		path         string
		before, body object
		part         string
	}{
		{"/v1/messages", anthropic("upon a time", "reads a file"), anthropic("a time ago", "reads a file"), "message_3"},
		{"/v1/messages", anthropic("upon a time", "reads a file"), anthropic("upon a time", "reads a book"), "tools"},
		{"/v1/responses", openai("upon a time", "reads a file"), openai("a time ago", "reads a file"), "message_4"},
		{"/v1/responses", openai("upon a time", "reads a file"), openai("upon a time", "reads a tape"), "tools"},
		{"/completion", text("One"), text("Two"), "prompt"},
		{"/v1/completions", text("Red"), text("Sun"), "prompt"},
	} {
		if got := r.ask(c.path, c.before); got.status != 200 {
			t.Fatalf("%s: %d %s", c.path, got.status, got.body)
		}
		got := r.ask(c.path, c.body)
		if f := fieldsOf(got.header); f["part"] != c.part {
			t.Errorf("%s: %q, expected %s", c.path, got.header, c.part)
		}
	}
}

// A stream begins before the answer: it says the token, and the figures say the rest.
func TestStreamsSayTheToken(t *testing.T) {
	r := templated(t, Options{}, "qwen2.5.jinja")
	r.ask("/v1/chat/completions", talk(nil))
	body := talk(object{"system": "You help the little cat. The folder is /home/two and you are kind."})
	want := firstDifference([][]int32{r.tokensOf("/v1/chat/completions", talk(nil))}, r.tokensOf("/v1/chat/completions", body))
	body["stream"] = true
	got := r.ask("/v1/chat/completions", body)
	if f := fieldsOf(got.header); f["parted"] != fmt.Sprint(want) || f["part"] != "" {
		t.Errorf("%q, expected token %d", got.header, want)
	}
	if p := r.lastParted(2); p == nil || p.Part != "system prompt" || p.Token != want {
		t.Errorf("the figures have %+v", p)
	}
}

// slowTexts is a server that gives no texts.
type slowTexts struct {
	http.RoundTripper
	asked, over chan struct{}
	once        sync.Once
}

func (s *slowTexts) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/detokenize") {
		s.once.Do(func() { close(s.asked); <-r.Context().Done(); close(s.over) })
		return nil, r.Context().Err()
	}
	return s.RoundTripper.RoundTrip(r)
}

// A stream ends when the server has ended it, and its slot is free then, however long it takes to see where its prompt parted.
func TestStreamsEndBeforeThePartIsKnown(t *testing.T) {
	r := templated(t, Options{}, "qwen2.5.jinja")
	r.ask("/v1/chat/completions", talk(nil))
	r.saved()
	a := r.front.servedFor("").api
	slow := &slowTexts{RoundTripper: a.Client.Transport, asked: make(chan struct{}), over: make(chan struct{})}
	a.Client = &http.Client{Transport: slow}
	body := talk(object{"system": "You help the little cat. The folder is /home/two and you are kind."})
	body["stream"] = true
	r.ask("/v1/chat/completions", body)
	select {
	case <-slow.over:
		t.Error("the stream ended when the server had been asked in vain for texts")
	default:
	}
	<-slow.asked
	if p := r.lastParted(2); p == nil || p.Part != "" {
		t.Errorf("the figures have %+v", p)
	}
}

// Where several people have keys, none hears how old the others' prompts are, and no text is in an answer, the log or the figures. With --scope-by-key
// nobody parts from what another one has said.
func TestPartedTellsNothingOfOthers(t *testing.T) {
	for _, byKey := range []bool{false, true} {
		t.Run(fmt.Sprint("by key ", byKey), func(t *testing.T) {
			r := templated(t, Options{ScopeByKey: byKey, Explain: true}, "qwen2.5.jinja", "--api-key", "one,two")
			ask := func(key string, body object) string {
				t.Helper()
				b, _ := json.Marshal(body)
				req, _ := http.NewRequest(http.MethodPost, r.url+"/v1/chat/completions", strings.NewReader(string(b)))
				req.Header.Set("Authorization", "Bearer "+key)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if resp.StatusCode != 200 {
					t.Fatal(resp.Status)
				}
				return resp.Header.Get(Header)
			}
			secret := "the secret word is Zebra"
			ask("one", talk(object{"first": "The day is red and " + secret}))
			r.saved()
			time.Sleep(1100 * time.Millisecond) // an age that could be told
			said := ask("two", talk(object{"first": "The day is red and the cat is not"}))
			f := fieldsOf(said)
			if f["age"] != "" || strings.Contains(said, "Zebra") {
				t.Errorf("%q", said)
			}
			if byKey != (f["parted"] == "") {
				t.Errorf("by key %v: %q", byKey, said)
			}
			all, err := r.front.Explain()
			if err != nil || byKey && len(all) > 0 || !byKey && (len(all) != 1 || !strings.Contains(all[0].Theirs, "secret")) {
				t.Errorf("by key %v, at the control socket: %+v, %v", byKey, all, err)
			}
			// One's own is compared all the same.
			if f := fieldsOf(ask("one", talk(object{"first": "The day is red and the dog is too"}))); f["parted"] == "" || f["age"] != "" {
				t.Errorf("of the same key: %v", f)
			}
			for _, q := range r.front.Figures().Recent {
				if q.Parted != nil && (q.Parted.Age != 0 || strings.Contains(fmt.Sprintf("%+v", *q.Parted), "Zebra")) {
					t.Errorf("the figures have %+v", q.Parted)
				}
			}
			if strings.Contains(r.log.String(), "Zebra") {
				t.Error("the log has a text")
			}
		})
	}
}

// A known cause is named, with what helps.
func TestPartedNamesTheCause(t *testing.T) {
	r := templated(t, Options{}, "smollm2.jinja")
	at := func(date string) object {
		return talk(object{"system": "You help the little cat.\nToday's date: " + date + "\nYou are kind."})
	}
	r.ask("/v1/chat/completions", at("2026-11-27"))
	r.ask("/v1/chat/completions", at("2026-12-01"))
	if p := r.lastParted(2); p == nil || p.Cause != causes.Clock || p.Advice == "" {
		t.Errorf("%+v", p)
	}
	if got := r.log.String(); !strings.Contains(got, "cause="+causes.Clock) || strings.Contains(got, "2026-12-01") {
		t.Error("the log says too little, or too much")
	}
}

// Texts are kept only where somebody said so: then they are those on both sides of the place, to the character.
func TestExplain(t *testing.T) {
	r := templated(t, Options{}, "qwen2.5.jinja")
	one, two := talk(nil), talk(object{"system": "You help the little cat. The folder is /home/öne and you are kind."})
	r.ask("/v1/chat/completions", one)
	r.ask("/v1/chat/completions", two)
	if all, err := r.front.Explain(); err == nil || all != nil {
		t.Errorf("without being asked to: %v, %v", all, err)
	}
	r = templated(t, Options{Explain: true}, "qwen2.5.jinja")
	r.ask("/v1/chat/completions", one)
	if got := r.ask("/v1/chat/completions", two); fieldsOf(got.header)["age"] == "" { // nobody has a key
		t.Errorf("%q says no age", got.header)
	}
	all, err := r.front.Explain()
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	x := all[0]
	if x.Part != "system prompt" || !strings.HasSuffix(x.Before, "The folder is /home/") || !strings.HasPrefix(x.Mine, "öne and") || !strings.HasPrefix(x.Theirs, "one and") ||
		len([]rune(x.Before)) != explainedText || len([]rune(x.Mine)) != explainedText || x.Endpoint != "/v1/chat/completions" {
		t.Errorf("%+v", x)
	}
	for i := range explainedRequests + 5 {
		r.front.explained.add(Explained{Token: i})
	}
	if all, _ = r.front.Explain(); len(all) != explainedRequests || all[0].Token != explainedRequests+4 {
		t.Errorf("%d are kept, the newest is %+v", len(all), all[0])
	}
	if _, err := r.front.Purge(t.Context(), Purge{All: true}); err != nil {
		t.Fatal(err)
	}
	if all, _ = r.front.Explain(); len(all) > 0 {
		t.Errorf("after a purge %d are kept", len(all))
	}
}
