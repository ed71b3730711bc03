package llamaserver

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rules"
)

// systemFirst has a server render the system prompt before the tools, and tools before all other messages.
func systemFirst(t testing.TB) []string {
	t.Helper()
	template, err := filepath.Abs("testdata/system-tools.jinja")
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--jinja", "--chat-template-file", template}
}

// agent is what an agent sends first in a folder: who it is, where it is, and tools.
func agent(folder string) object {
	schema := object{"type": "object"}
	var tools []object
	for i := range 4 {
		tools = append(tools, object{"type": "function", "function": object{"name": fmt.Sprint("tool", i), "description": "It does it.", "parameters": schema}})
	}
	return object{
		"tools": tools, "max_tokens": 4, "temperature": 0,
		"messages": []object{
			{"role": "system", "content": "You are a good helper. " + "\n<env>\n  Working directory: " + folder + "\n  Platform: linux\n</env>\nBe brief."},
			{"role": "user", "content": "What is in it?"},
		},
	}
}

// With a rule that moves what differs, a conversation in another folder begins with all that came before the first message, and goes on as it
// would anywhere; what the server answers is what it answers to such a request.
func TestNormalized(t *testing.T) {
	args := append(systemFirst(t), "-c", "4096", "-np", "1")
	file := filepath.Join(t.TempDir(), "rules.json")
	const rule = `{"rules": [{"name": "here", "parts": ["system", "tools"], "pattern": "(?m)^ *Working directory: .*$", "action": "move"}]}`
	if err := os.WriteFile(file, []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	reused := func(a reply) float64 { return float64(a.a.Cached) / float64(a.a.Cached+a.a.Prompt) }
	second := func(r *rig) reply {
		if got := r.ask("/v1/chat/completions", agent("/home/ann")); got.status != 200 || !strings.HasPrefix(got.header, "miss") {
			t.Fatalf("the first answer is %d %s", got.status, got.header)
		}
		r.saved()
		r.killServer()
		return r.ask("/v1/chat/completions", agent("/srv/other"))
	}
	without := start(t, Options{}, args...)
	if got := second(without); reused(got) > 0.5 || strings.Contains(got.header, "normalized") {
		t.Errorf("without rules %.2f are reused (%s): the test shows nothing", reused(got), got.header)
	}
	without.stop()

	alone := plain(t, args...)
	r := start(t, Options{Normalize: []string{file, "claude-code"}}, args...)
	got := second(r)
	if reused(got) < 0.85 || !strings.HasPrefix(got.header, "hit; ") || !strings.HasSuffix(got.header, "; normalized=here") && !strings.HasSuffix(got.header, "; normalized=here,cwd") {
		t.Errorf("in another folder %.2f are reused (%s), expected 0.85", reused(got), got.header)
	}
	body, err := json.Marshal(agent("/srv/other"))
	if err != nil {
		t.Fatal(err)
	}
	rs, err := rules.Parse([]byte(rule))
	if err != nil {
		t.Fatal(err)
	}
	as, _ := rs.Apply(request.Chat, body)
	if want := ask(t, context.Background(), alone, "/v1/chat/completions", string(as)); got.text != want.text || got.a.Cached+got.a.Prompt != want.a.Cached+want.a.Prompt {
		t.Errorf("the answer is %q to %d tokens, alone %q to %d", got.text, got.a.Cached+got.a.Prompt, want.text, want.a.Cached+want.a.Prompt)
	}
	// The next turn begins with all of this one.
	next := agent("/srv/other")
	next["messages"] = append(next["messages"].([]object), object{"role": "assistant", "content": got.text}, object{"role": "user", "content": "And now?"})
	if on := r.ask("/v1/chat/completions", next); on.a.Cached < got.a.Cached+got.a.Prompt-2 || !strings.HasPrefix(on.header, "slot") {
		t.Errorf("in the next turn %d tokens of %d are reused (%s)", on.a.Cached, got.a.Cached+got.a.Prompt, on.header)
	}
	many := agent("/home/ann")
	many["n"] = 2
	if got := r.ask("/v1/chat/completions", many); !strings.HasPrefix(got.header, "pass; reason=several_answers; normalized=here") {
		t.Errorf("of a request that passes the answer says %s", got.header)
	}
	if got := r.ask("/v1/chat/completions", object{"messages": []object{{"role": "user", "content": "Working directory: /a"}}, "max_tokens": 4}); strings.Contains(got.header, "normalized") {
		t.Errorf("of a request in which no rule finds anything the answer says %s", got.header)
	}
	status, err := r.front.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := status.Normalized; len(n) == 0 || n[0] != (Normalized{"here", file, "move", 4}) {
		t.Errorf("the status says %+v", n)
	}
	if !strings.Contains(r.log.String(), "a rule changes requests") {
		t.Error("nothing of it is in the log")
	}
}

// Whoever names rules that cannot be had is told so, before anything is started.
func TestNormalizedByNothing(t *testing.T) {
	_, err := New(nowhere(t), &Arguments{}, Options{Dir: t.TempDir() + "/store", Normalize: []string{"claude"}})
	if err == nil || !strings.Contains(err.Error(), "Options.Normalize") || !strings.Contains(err.Error(), "claude-code") {
		t.Errorf("%v", err)
	}
}
