package request

import (
	"context"
	"testing"
)

func shapeOf(t *testing.T, e Endpoint, body string) *Shape {
	t.Helper()
	r, err := Parse(e, []byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	s, err := ShapeOf(context.Background(), r, nil) // it asks the server nothing
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return s
}

// A request goes on with another one if all that decides its prompt is the same, and more follows.
func TestShapes(t *testing.T) {
	const one = `{"role":"user","content":"one"}`
	for _, c := range []struct {
		e             Endpoint
		before, after string
		ok            bool
		messages      int
	}{
		{Chat, `{"messages":[` + one + `]}`, `{"messages":[` + one + `,{"role":"assistant","content":"a"},{"role":"user","content":"two"}]}`, true, 2},
		{Chat, `{"messages":[` + one + `]}`, `{"messages":[` + one + `],"max_tokens":7,"stream":true,"temperature":0.5}`, true, 0},
		{Chat, `{"messages":[` + one + `],"tools":[]}`, `{"messages":[` + one + `]}`, false, 0},
		{Chat, `{"messages":[` + one + `],"chat_template_kwargs":{"enable_thinking":true}}`, `{"messages":[` + one + `],"chat_template_kwargs":{"enable_thinking":false}}`, false, 0},
		{Chat, `{"messages":[` + one + `],"model":"a"}`, `{"messages":[` + one + `],"model":"b"}`, false, 0},
		{Chat, `{"messages":[` + one + `,` + one + `]}`, `{"messages":[` + one + `]}`, false, 0},
		{Chat, `{"messages":[` + one + `]}`, `{"messages":[{"role":"user","content":"other"},` + one + `]}`, false, 0},
		{Chat, `{"messages":[` + one + `]}`, `{"messages":[{"role":"system","content":"one"},` + one + `]}`, false, 0},
		{Chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"one","cache_control":{"type":"ephemeral"}}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"one"}]},` + one + `]}`, true, 1},
		{Chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"one","cache_control":{"type":"ephemeral"}}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"two"}]},` + one + `]}`, false, 0},
		{Messages, `{"system":"s","max_tokens":4,"metadata":{"user_id":"x"},"messages":[` + one + `]}`,
			`{"system":"s","max_tokens":5,"messages":[` + one + `,{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"},{"type":"text","text":"go on"}]}]}`, true, 3},
		{Messages, `{"system":"s","messages":[` + one + `]}`, `{"system":"t","messages":[` + one + `]}`, false, 0},
		{Messages, `{"system":"s","messages":[` + one + `]}`, `{"system":"s","messages":[` + one + `],"thinking":{"type":"enabled","budget_tokens":5}}`, false, 0},
		{Responses, `{"input":"one"}`, `{"input":[{"role":"user","content":"one"}]}`, false, 0},
		{Responses, `{"instructions":"i","input":[{"role":"user","content":"one"}]}`,
			`{"instructions":"i","input":[{"role":"user","content":"one"},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"r"}]}`, true, 2},
		{Completion, `{"prompt":"one"}`, `{"prompt":"one two"}`, true, 0},
		{Completion, `{"prompt":"one"}`, `{"prompt":"One two"}`, false, 0},
		{Completion, `{"prompt":"one","lora":[{"id":0,"scale":1}]}`, `{"prompt":"one two"}`, false, 0},
	} {
		_, messages, ok := shapeOf(t, c.e, c.after).Extends(shapeOf(t, c.e, c.before))
		if ok != c.ok || messages != c.messages {
			t.Errorf("%v %s\nbehind %s: %v, %d messages; expected %v, %d", c.e, c.after, c.before, ok, messages, c.ok, c.messages)
		}
	}
	if shapeOf(t, Completion, `{"prompt":["one", 5]}`) != nil || shapeOf(t, Completion, `{"prompt":[1,2,3]}`) != nil {
		t.Error("a shape is told of a prompt that is no text")
	}
	if _, _, ok := shapeOf(t, Chat, `{"messages":[`+one+`]}`).Extends(shapeOf(t, Messages, `{"messages":[`+one+`]}`)); ok {
		t.Error("a request goes on with one of another endpoint")
	}
}
