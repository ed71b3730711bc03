package llamaserver_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// What Codex 0.171 sends as it is installed, cut short: its second turn is found, also after a kill of the server.
func TestCodexAsInstalled(t *testing.T) {
	template, err := filepath.Abs(rig.Testdata("tools.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(rig.Testdata("codex.json"))
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		rig.Object
		Input []json.RawMessage
	}
	if err := json.Unmarshal(raw, &body.Object); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		t.Fatal(err)
	}
	r := rig.Start(t, llamaserver.Options{}, "-c", "8192", "-np", "1", "--override-kv", "llama.context_length=int:8192", "-n", "4", "--jinja", "--chat-template-file", template)
	turn := func(items int) rig.Reply {
		body.Object["input"] = body.Input[:items]
		before := r.Requests()
		got := r.Ask("/v1/responses", body.Object)
		r.Eventually(func() bool { return r.Requests() > before })
		if tokens := r.Front.Figures().Recent[0].Asked; got.Status != 200 || got.A.Cached+got.A.Prompt != tokens {
			t.Fatalf("%d %s: the server has %d tokens, the front %d\n%s", got.Status, got.Header, got.A.Cached+got.A.Prompt, tokens, got.Body)
		}
		return got
	}
	if got := turn(4); got.Header != "miss; reason=nothing_stored" {
		t.Errorf("the first turn: %s", got.Header)
	}
	if got := turn(8); !strings.HasPrefix(got.Header, "slot; ") {
		t.Errorf("the second turn: %s", got.Header)
	}
	r.Saved()
	r.KillServer()
	if got := turn(len(body.Input)); !strings.HasPrefix(got.Header, "hit; ") || got.A.Prompt > 100 {
		t.Errorf("after a kill: %s, %d tokens are computed", got.Header, got.A.Prompt)
	}
	if counted := r.Front.Counted(); len(counted) != 1 || !counted["responses with tools, reasoning, parallel_tool_calls, type namespace,web_search"] {
		t.Errorf("the server was asked for its count of %v", counted)
	}
}
