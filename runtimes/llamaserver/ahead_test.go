package llamaserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/obs/figures"
)

// dialog is a conversation that grows.
type dialog struct {
	path     string
	system   string
	messages []object
}

func newDialog(path, who string) *dialog {
	return &dialog{path: path, system: story("You are "+who+".", 30)["prompt"].(string), messages: []object{{"role": "user", "content": "Tell me of " + who}}}
}

func (c *dialog) body() object {
	b := object{"max_tokens": 6, "temperature": 0, "messages": c.messages}
	switch c.path {
	case "/v1/messages":
		b["system"] = c.system
	case "/v1/responses":
		delete(b, "messages")
		delete(b, "max_tokens")
		b["max_output_tokens"], b["instructions"], b["input"] = 6, c.system, itemsOf(c.messages)
	default:
		b["messages"] = append([]object{{"role": "system", "content": c.system}}, c.messages...)
	}
	return b
}

// itemsOf are messages as /v1/responses takes them.
func itemsOf(messages []object) (out []object) {
	for _, m := range messages {
		part := object{"type": "input_text", "text": m["content"]}
		if m["role"] == "assistant" {
			part["type"] = "output_text"
		}
		out = append(out, object{"type": "message", "status": "completed", "role": m["role"], "content": []object{part}})
	}
	return out
}

// next is the next turn.
func (c *dialog) next(said string) *dialog {
	return &dialog{c.path, c.system, append(c.messages[:len(c.messages):len(c.messages)], object{"role": "assistant", "content": said}, object{"role": "user", "content": "And then?"})}
}

// spoken is the text of an answer of any endpoint.
func spoken(got reply) string {
	if got.text != "" {
		return got.text
	}
	type part struct{ Text string }
	var v struct {
		Content []part
		Output  []struct{ Content []part }
	}
	json.Unmarshal([]byte(got.body), &v)
	for _, o := range v.Output {
		v.Content = append(v.Content, o.Content...)
	}
	var b strings.Builder
	for _, p := range v.Content {
		b.WriteString(p.Text)
	}
	return b.String()
}

// roomy has a server take prompts of thousands of tokens.
func roomy(more ...string) []string {
	return append([]string{"-c", "16384", "--override-kv", "llama.context_length=int:8192"}, more...)
}

// ahead is how many requests were sent before their tokens were known.
func (r *rig) ahead() int {
	return strings.Count(r.log.String(), "a request is sent before its tokens are known")
}

var chatPaths = []string{"/v1/chat/completions", "/v1/messages", "/v1/responses"}

// The next turn of a conversation goes to its slot before its tokens are known. The answer is that of the server alone, the front knows afterwards what the
// slot holds, and what is stored and counted is as if the tokens had been known before.
func TestNextTurnGoesAhead(t *testing.T) {
	for _, path := range chatPaths {
		t.Run(path, func(t *testing.T) {
			dir := t.TempDir()
			r := start(t, Options{Dir: dir}, roomy("-np", "2")...)
			alone := plain(t, roomy("-np", "2")...)
			c := newDialog(path, "a cat")
			var last reply
			asked := 0
			for turn := range 4 {
				last = r.ask(path, c.body())
				want := ask(t, context.Background(), alone, path, c.body())
				if last.status != http.StatusOK || spoken(last) != spoken(want) {
					t.Fatalf("turn %d: %d %q (%s), alone %d %q", turn, last.status, spoken(last), last.header, want.status, spoken(want))
				}
				asked += last.a.Cached + last.a.Prompt
				r.saved()
				if got := r.ahead(); got != turn {
					t.Errorf("turn %d: %d requests went ahead", turn, got)
				}
				if turn > 0 && (!strings.HasPrefix(last.header, "slot; tokens=") || claim(last.header) != last.a.Cached || last.a.Cached < 600) {
					t.Errorf("turn %d: %s, %d tokens reused", turn, last.header, last.a.Cached)
				}
				c = c.next(spoken(last))
			}
			r.eventually(func() bool {
				return r.front.Figures().Requests[figures.Kind{Outcome: figures.Slot, Reason: figures.ServerCache}] == 3
			})
			if f := r.front.Figures(); f.Asked != int64(asked) || f.Unused != 0 {
				t.Errorf("%d tokens are counted of %d, %d of them restored for nothing", f.Asked, asked, f.Unused)
			}
			r.killServer() // the last turn was stored as any other
			if got := r.ask(path, c.body()); !strings.HasPrefix(got.header, "hit; tokens=") || got.a.Cached < last.a.Cached+last.a.Prompt-2 {
				t.Errorf("after a kill: %s, %d tokens reused, the turn before had %d", got.header, got.a.Cached, last.a.Cached+last.a.Prompt)
			}
			if got := r.ahead(); got != 3 {
				t.Errorf("after a kill a request went ahead")
			}
		})
	}
}

// What the front believes of the slot is looked at: a slot that has lost what it held is filled from the store.
func TestNothingGoesAheadInDoubt(t *testing.T) {
	r := start(t, Options{}, roomy("-np", "2")...)
	direct := r.front.apiOf("")
	c := newDialog("/v1/chat/completions", "a dog")
	turn := func(what, want string, ahead int) {
		t.Helper()
		before := r.ahead()
		got := r.ask(c.path, c.body())
		if !strings.HasPrefix(got.header, want) || r.ahead()-before != ahead || want != "miss" && got.a.Cached < 600 {
			t.Errorf("%s: %s, %d tokens reused, %d went ahead; expected %s, %d", what, got.header, got.a.Cached, r.ahead()-before, want, ahead)
		}
		r.saved()
		c = c.next(spoken(got))
	}
	turn("the first turn", "miss", 0)
	turn("the second turn", "slot", 1)
	for id := range 2 { // past the front
		if err := direct.Erase(context.Background(), id); err != nil {
			t.Fatal(err)
		}
	}
	turn("of an emptied slot", "hit", 0)
	turn("after that", "slot", 1)
	r.ask("/v1/completions", object{"prompt": []any{"x", "y"}, "max_tokens": 2}) // passes: it may have been in any slot
	turn("after a request that passed", "", 0)
	turn("after that", "slot", 1)
	c.system += " You are old."
	turn("another system prompt", "", 0)
	c.messages = append(c.messages, object{"role": "user", "content": story("And", 60)["prompt"]})
	turn("where much is new", "slot", 0)
	turn("after that", "slot", 1)
	r.front.servedFor("").files.Soil()
	turn("after rows that are none of the model's", "", 0)
}

// Clients that go away while their request is sent ahead leave a slot of which the front knows the truth.
func TestClientsGoAhead(t *testing.T) {
	r := start(t, Options{}, roomy("-np", "1")...)
	c := newDialog("/v1/chat/completions", "a bird")
	for i := range 6 {
		got := r.ask(c.path, c.body())
		if got.status != http.StatusOK {
			t.Fatalf("%+v", got)
		}
		r.saved()
		c = c.next(spoken(got))
		ctx, cancel := context.WithCancel(context.Background())
		long := c.body()
		long["max_tokens"], long["stream"] = 2000, true
		done := make(chan struct{})
		go func() {
			defer close(done)
			ask(t, ctx, r.url, c.path, long)
		}()
		if i%2 == 0 {
			r.eventually(func() bool { return r.front.Figures().Busy > 0 })
		}
		cancel()
		<-done
		r.saved()
	}
	r.killServer()
	if got := r.ask(c.path, c.body()); !strings.HasPrefix(got.header, "hit") || got.a.Cached < 600 {
		t.Errorf("after a kill: %s, %d tokens reused", got.header, got.a.Cached)
	}
}

// Conversations by turns over two slots, some faster than their slots are saved: all answers are those of the server alone, and what is stored is restored.
func TestConversationsGoAhead(t *testing.T) {
	r := start(t, Options{}, roomy("-np", "2")...)
	alone := plain(t, roomy("-np", "1")...)
	var talks []*dialog
	for i := range 3 {
		talks = append(talks, newDialog(chatPaths[i%2], fmt.Sprint("number ", i)))
	}
	for turn := range 4 {
		for i, c := range talks {
			for range 1 + 2*(turn%2) { // some turns at once
				got := r.ask(c.path, c.body())
				body := c.body()
				body["cache_prompt"] = false
				want := ask(t, context.Background(), alone, c.path, body)
				if got.status != http.StatusOK || spoken(got) != spoken(want) {
					t.Fatalf("turn %d of %d: %q (%s), alone %q", turn, i, spoken(got), got.header, spoken(want))
				}
				c = c.next(spoken(got))
			}
			talks[i] = c
		}
	}
	if r.ahead() == 0 {
		t.Error("none went ahead")
	}
	r.saved()
	if n := r.front.Figures().Unused; n > 0 {
		t.Errorf("%d tokens were restored for nothing", n)
	}
}
