package dialogs_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// Agents with tools, by both ways in, are restored to their end after kills: the server's own rendering is that of the front.
func TestToolsAreRendered(t *testing.T) {
	template, err := filepath.Abs(rig.Testdata("tools.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	r := rig.Start(t, llamaserver.Options{}, "-c", "4096", "-np", "2", "--jinja", "--chat-template-file", template)
	schema := rig.Object{"type": "object", "properties": rig.Object{"path": rig.Object{"type": "string"}}, "required": []string{"path"}}
	long := strings.Repeat("The cat sat on the mat and saw a dog. ", 8)
	for name, c := range map[string]struct {
		path string
		body rig.Object
	}{
		"messages": {"/v1/messages", rig.Object{
			"system": []rig.Object{{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=a5145;You help."}, {"type": "text", "text": long, "cache_control": rig.Object{"type": "ephemeral"}}},
			"tools":  []rig.Object{{"name": "read", "description": "reads <a> file", "input_schema": schema}},
			"messages": []rig.Object{
				{"role": "user", "content": []rig.Object{{"type": "text", "text": "What is in it?"}, {"type": "text", "text": "Look."}}},
				{"role": "assistant", "content": []rig.Object{{"type": "thinking", "thinking": "I look.", "signature": "s"}, {"type": "text", "text": "I read it."},
					{"type": "tool_use", "id": "t1", "name": "read", "input": rig.Object{"path": "é \"x\""}}}},
				{"role": "user", "content": []rig.Object{{"type": "tool_result", "tool_use_id": "t1", "content": []rig.Object{{"type": "text", "text": "Once"}, {"type": "text", "text": "upon"}}}}},
			},
			"tool_choice": rig.Object{"type": "auto"}, "thinking": rig.Object{"type": "enabled", "budget_tokens": 100}, "max_tokens": 4, "temperature": 0,
		}},
		"responses": {"/v1/responses", rig.Object{
			"instructions": "You help. " + long, "tools": []rig.Object{{"type": "function", "name": "read", "description": "reads a file", "strict": false, "parameters": schema}},
			"input": []rig.Object{
				{"type": "message", "role": "user", "content": []rig.Object{{"type": "input_text", "text": "What is in it?"}}},
				{"type": "message", "role": "assistant", "content": []rig.Object{{"type": "output_text", "text": "I read it."}}},
				{"type": "function_call", "call_id": "t1", "name": "read", "arguments": `{"path": "x"}`},
				{"type": "function_call_output", "call_id": "t1", "output": "Once upon"},
			},
			"tool_choice": "auto", "parallel_tool_calls": false, "reasoning": rig.Object{"effort": "low", "summary": "auto"}, "store": false, "include": []string{"reasoning.encrypted_content"},
			"prompt_cache_key": "k", "max_output_tokens": 4, "temperature": 0,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			first := r.Ask(c.path, c.body)
			if first.Status != 200 {
				t.Fatalf("the first answer is %d %s %s", first.Status, first.Header, first.Body)
			}
			r.Saved()
			r.KillServer()
			got := r.Ask(c.path, c.body)
			if want := first.A.Cached + first.A.Prompt - 1; got.Status != 200 || !strings.HasPrefix(got.Header, "hit") || got.A.Cached != want {
				t.Errorf("after a kill %d of %d tokens are reused: %d %s", got.A.Cached, want, got.Status, got.Header)
			}
			r.Saved()
		})
	}
}
