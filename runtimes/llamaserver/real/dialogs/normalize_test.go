package dialogs_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rules"
)

// With a rule that moves what differs, a conversation in another folder begins with all that came before the first message, and goes on as it
// would anywhere; what the server answers is what it answers to such a request.
func TestNormalized(t *testing.T) {
	args := append(rig.SystemFirst(t), "-c", "4096", "-np", "1")
	file := filepath.Join(t.TempDir(), "rules.json")
	const rule = `{"rules": [{"name": "here", "parts": ["system", "tools"], "pattern": "(?m)^ *Working directory: .*$", "action": "move"}]}`
	if err := os.WriteFile(file, []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	reused := func(a rig.Reply) float64 { return float64(a.A.Cached) / float64(a.A.Cached+a.A.Prompt) }
	second := func(r *rig.Rig) rig.Reply {
		if got := r.Ask("/v1/chat/completions", rig.AgentRequest("/home/ann")); got.Status != 200 || !strings.HasPrefix(got.Header, "miss") {
			t.Fatalf("the first answer is %d %s", got.Status, got.Header)
		}
		r.Saved()
		r.KillServer()
		return r.Ask("/v1/chat/completions", rig.AgentRequest("/srv/other"))
	}
	without := rig.Start(t, llamaserver.Options{}, args...)
	if got := second(without); reused(got) > 0.5 || strings.Contains(got.Header, "normalized") {
		t.Errorf("without rules %.2f are reused (%s): the test shows nothing", reused(got), got.Header)
	}
	without.Stop()

	alone := rig.Plain(t, args...)
	r := rig.Start(t, llamaserver.Options{Normalize: []string{file, "claude-code"}}, args...)
	got := second(r)
	if reused(got) < 0.85 || !strings.HasPrefix(got.Header, "hit; ") || !strings.HasSuffix(got.Header, "; normalized=here") && !strings.HasSuffix(got.Header, "; normalized=here,cwd") {
		t.Errorf("in another folder %.2f are reused (%s), expected 0.85", reused(got), got.Header)
	}
	body, err := json.Marshal(rig.AgentRequest("/srv/other"))
	if err != nil {
		t.Fatal(err)
	}
	rs, err := rules.Parse([]byte(rule))
	if err != nil {
		t.Fatal(err)
	}
	as, _ := rs.Apply(request.Chat, body)
	if want := rig.Ask(t, context.Background(), alone, "/v1/chat/completions", string(as)); got.Text != want.Text || got.A.Cached+got.A.Prompt != want.A.Cached+want.A.Prompt {
		t.Errorf("the answer is %q to %d tokens, alone %q to %d", got.Text, got.A.Cached+got.A.Prompt, want.Text, want.A.Cached+want.A.Prompt)
	}
	// The next turn begins with all of this one.
	next := rig.AgentRequest("/srv/other")
	next["messages"] = append(next["messages"].([]rig.Object), rig.Object{"role": "assistant", "content": got.Text}, rig.Object{"role": "user", "content": "And now?"})
	if on := r.Ask("/v1/chat/completions", next); on.A.Cached < got.A.Cached+got.A.Prompt-2 || !strings.HasPrefix(on.Header, "slot") {
		t.Errorf("in the next turn %d tokens of %d are reused (%s)", on.A.Cached, got.A.Cached+got.A.Prompt, on.Header)
	}
	many := rig.AgentRequest("/home/ann")
	many["n"] = 2
	if got := r.Ask("/v1/chat/completions", many); !strings.HasPrefix(got.Header, "pass; reason=several_answers; normalized=here") {
		t.Errorf("of a request that passes the answer says %s", got.Header)
	}
	if got := r.Ask("/v1/chat/completions", rig.Object{"messages": []rig.Object{{"role": "user", "content": "Working directory: /a"}}, "max_tokens": 4}); strings.Contains(got.Header, "normalized") {
		t.Errorf("of a request in which no rule finds anything the answer says %s", got.Header)
	}
	status, err := r.Front.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := status.Normalized; len(n) == 0 || n[0] != (llamaserver.Normalized{Rule: "here", From: file, Action: "move", Requests: 4}) {
		t.Errorf("the status says %+v", n)
	}
	if !strings.Contains(r.Log.String(), "a rule changes requests") {
		t.Error("nothing of it is in the log")
	}
}

// Whoever names rules that cannot be had is told so, before anything is started.
func TestNormalizedByNothing(t *testing.T) {
	_, err := llamaserver.New(rig.Nowhere(t), &llamaserver.Arguments{}, llamaserver.Options{Dir: t.TempDir() + "/store", Normalize: []string{"claude"}})
	if err == nil || !strings.Contains(err.Error(), "Options.Normalize") || !strings.Contains(err.Error(), "claude-code") {
		t.Errorf("%v", err)
	}
}
