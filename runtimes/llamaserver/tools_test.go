package llamaserver

import (
	"path/filepath"
	"strings"
	"testing"
)

// Agents with tools, by both ways in, are restored to their end after kills: the server's own rendering is that of the front.
func TestToolsAreRendered(t *testing.T) {
	template, err := filepath.Abs("testdata/tools.jinja")
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, Options{}, "-c", "4096", "-np", "2", "--jinja", "--chat-template-file", template)
	schema := object{"type": "object", "properties": object{"path": object{"type": "string"}}, "required": []string{"path"}}
	long := strings.Repeat("The cat sat on the mat and saw a dog. ", 8)
	for name, c := range map[string]struct {
		path string
		body object
	}{
		"messages": {"/v1/messages", object{
			"system": []object{{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=a5145;You help."}, {"type": "text", "text": long, "cache_control": object{"type": "ephemeral"}}},
			"tools":  []object{{"name": "read", "description": "reads <a> file", "input_schema": schema}},
			"messages": []object{
				{"role": "user", "content": []object{{"type": "text", "text": "What is in it?"}, {"type": "text", "text": "Look."}}},
				{"role": "assistant", "content": []object{{"type": "thinking", "thinking": "I look.", "signature": "s"}, {"type": "text", "text": "I read it."},
					{"type": "tool_use", "id": "t1", "name": "read", "input": object{"path": "é \"x\""}}}},
				{"role": "user", "content": []object{{"type": "tool_result", "tool_use_id": "t1", "content": []object{{"type": "text", "text": "Once"}, {"type": "text", "text": "upon"}}}}},
			},
			"tool_choice": object{"type": "auto"}, "thinking": object{"type": "enabled", "budget_tokens": 100}, "max_tokens": 4, "temperature": 0,
		}},
		"responses": {"/v1/responses", object{
			"instructions": "You help. " + long, "tools": []object{{"type": "function", "name": "read", "description": "reads a file", "strict": false, "parameters": schema}},
			"input": []object{
				{"type": "message", "role": "user", "content": []object{{"type": "input_text", "text": "What is in it?"}}},
				{"type": "message", "role": "assistant", "content": []object{{"type": "output_text", "text": "I read it."}}},
				{"type": "function_call", "call_id": "t1", "name": "read", "arguments": `{"path": "x"}`},
				{"type": "function_call_output", "call_id": "t1", "output": "Once upon"},
			},
			"tool_choice": "auto", "parallel_tool_calls": false, "reasoning": object{"effort": "low", "summary": "auto"}, "store": false, "include": []string{"reasoning.encrypted_content"},
			"prompt_cache_key": "k", "max_output_tokens": 4, "temperature": 0,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			first := r.ask(c.path, c.body)
			if first.status != 200 {
				t.Fatalf("the first answer is %d %s %s", first.status, first.header, first.body)
			}
			r.saved()
			r.killServer()
			got := r.ask(c.path, c.body)
			if want := first.a.Cached + first.a.Prompt - 1; got.status != 200 || !strings.HasPrefix(got.header, "hit") || got.a.Cached != want {
				t.Errorf("after a kill %d of %d tokens are reused: %d %s", got.a.Cached, want, got.status, got.header)
			}
			r.saved()
		})
	}
}
