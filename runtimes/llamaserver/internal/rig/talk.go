package rig

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// Dialog is a conversation that grows.
type Dialog struct {
	Path     string
	System   string
	Messages []Object
}

func NewDialog(path, who string) *Dialog {
	return &Dialog{Path: path, System: Story("You are "+who+".", 30)["prompt"].(string), Messages: []Object{{"role": "user", "content": "Tell me of " + who}}}
}

func (c *Dialog) Body() Object {
	b := Object{"max_tokens": 6, "temperature": 0, "messages": c.Messages}
	switch c.Path {
	case "/v1/messages":
		b["system"] = c.System
	case "/v1/responses":
		delete(b, "messages")
		delete(b, "max_tokens")
		b["max_output_tokens"], b["instructions"], b["input"] = 6, c.System, itemsOf(c.Messages)
	default:
		b["messages"] = append([]Object{{"role": "system", "content": c.System}}, c.Messages...)
	}
	return b
}

// itemsOf are messages as /v1/responses takes them.
func itemsOf(messages []Object) (out []Object) {
	for _, m := range messages {
		part := Object{"type": "input_text", "text": m["content"]}
		if m["role"] == "assistant" {
			part["type"] = "output_text"
		}
		out = append(out, Object{"type": "message", "status": "completed", "role": m["role"], "content": []Object{part}})
	}
	return out
}

// Next is the next turn.
func (c *Dialog) Next(said string) *Dialog {
	return &Dialog{c.Path, c.System, append(c.Messages[:len(c.Messages):len(c.Messages)], Object{"role": "assistant", "content": said}, Object{"role": "user", "content": "And then?"})}
}

// Spoken is the text of an answer of any endpoint.
func Spoken(got Reply) string {
	if got.Text != "" {
		return got.Text
	}
	type part struct{ Text string }
	var v struct {
		Content []part
		Output  []struct{ Content []part }
	}
	json.Unmarshal([]byte(got.Body), &v)
	for _, o := range v.Output {
		v.Content = append(v.Content, o.Content...)
	}
	var b strings.Builder
	for _, p := range v.Content {
		b.WriteString(p.Text)
	}
	return b.String()
}

// Roomy has a server take prompts of thousands of tokens.
func Roomy(more ...string) []string {
	return append([]string{"-c", "16384", "--override-kv", "llama.context_length=int:8192"}, more...)
}

// Ahead is how many requests were sent before their tokens were known.
func (r *Rig) Ahead() int {
	return strings.Count(r.Log.String(), "a request is sent before its tokens are known")
}

var ChatPaths = []string{"/v1/chat/completions", "/v1/messages", "/v1/responses"}

// Templated starts a server with a chat template of testdata.
func Templated(t *testing.T, o llamaserver.Options, template string, args ...string) *Rig {
	t.Helper()
	path, err := filepath.Abs(Testdata(template))
	if err != nil {
		t.Fatal(err)
	}
	return Start(t, o, append([]string{"-c", "8192", "-np", "1", "--override-kv", "llama.context_length=int:8192", "--jinja", "--chat-template-file", path}, args...)...)
}

// TokensOf are the tokens that the front makes of a request.
func (r *Rig) TokensOf(path string, body Object) []int32 {
	r.T.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		r.T.Fatal(err)
	}
	req, err := request.Parse(request.EndpointOf(path, ""), b)
	if err != nil {
		r.T.Fatal(err)
	}
	tokens, err := req.Render(r.T.Context(), &api.Client{Base: r.Base, Client: http.DefaultClient})
	if err != nil {
		r.T.Fatal(err)
	}
	return tokens
}

// FieldsOf are what X-Dormouse says of the place where a prompt parted.
func FieldsOf(header string) map[string]string {
	out := map[string]string{}
	for _, f := range strings.Split(header, "; ") {
		if k, v, ok := strings.Cut(f, "="); ok {
			out[k] = v
		}
	}
	return out
}

// LastParted is what the figures say of the last of n requests.
func (r *Rig) LastParted(n int) *figures.Parted {
	r.T.Helper()
	var list []figures.Request
	r.Eventually(func() bool { list = r.Front.Figures().Recent; return len(list) >= n })
	return list[0].Parted
}

// FirstDifference is at how many tokens a prompt parts from those before it.
func FirstDifference(before [][]int32, p []int32) (most int) {
	for _, q := range before {
		n := 0
		for n < min(len(p), len(q)) && p[n] == q[n] {
			n++
		}
		most = max(most, n)
	}
	return most
}

const LongTurn = "Tell me of the little dog that ran to the park, and saw a big red ball, and a tree. It was a sunny day, and the dog was happy. "

// Talk is a chat of some turns, with what a test says in some places.
func Talk(more Object) Object {
	say := Object{"system": "You help the little cat. The folder is /home/one and you are kind.", "first": "Hi", "second": "Hello. What is it?", "third": strings.Repeat(LongTurn, 8)}
	maps.Copy(say, more)
	var messages []Object
	if say["system"] != nil {
		messages = append(messages, Object{"role": "system", "content": say["system"]})
	}
	messages = append(messages, Object{"role": "user", "content": say["first"]}, Object{"role": "assistant", "content": say["second"]}, Object{"role": "user", "content": say["third"]})
	body := Object{"messages": messages, "max_tokens": 1, "temperature": 0}
	if say["tools"] != nil {
		body["tools"] = say["tools"]
	}
	return body
}

func Tool(name, about string) Object {
	return Object{"type": "function", "function": Object{"name": name, "description": about, "parameters": Object{"type": "object", "properties": Object{"path": Object{"type": "string"}}}}}
}

// SystemFirst has a server render the system prompt before the tools, and tools before all other messages.
func SystemFirst(t testing.TB) []string {
	t.Helper()
	template, err := filepath.Abs(Testdata("system-tools.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--jinja", "--chat-template-file", template}
}

// AgentRequest is what an agent sends first in a folder: who it is, where it is, and tools.
func AgentRequest(folder string) Object {
	schema := Object{"type": "object"}
	var tools []Object
	for i := range 4 {
		tools = append(tools, Object{"type": "function", "function": Object{"name": fmt.Sprint("tool", i), "description": "It does it.", "parameters": schema}})
	}
	return Object{
		"tools": tools, "max_tokens": 4, "temperature": 0,
		"messages": []Object{
			{"role": "system", "content": "You are a good helper. " + "\n<env>\n  Working directory: " + folder + "\n  Platform: linux\n</env>\nBe brief."},
			{"role": "user", "content": "What is in it?"},
		},
	}
}
