package request

import (
	"encoding/json"
	"errors"
	"testing"
)

// wordings are requests, and the chats that they are; none: it passes.
var wordings = []struct {
	f          func(fields) wording
	body, want string
}{
	{responsesAsChat, `{"input":"hi","instructions":"be kind"}`, `{"messages":[{"content":"be kind","role":"system"},{"content":"hi","role":"user"}]}`},
	{responsesAsChat, `{"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"message","role":"assistant","content":"b"}]}`,
		`{"messages":[{"content":[{"text":"a","type":"text"}],"role":"user"},{"content":[{"text":"b","type":"text"}],"role":"assistant"}]}`},
	{responsesAsChat, `{"input":[{"type":"message","role":"assistant","content":"b"},{"type":"function_call","call_id":"1","name":"f","arguments":"{\"a\": 1}"},
		{"type":"function_call","call_id":"2","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"x"}]}`,
		`{"messages":[{"content":[{"text":"b","type":"text"}],"role":"assistant","tool_calls":[{"function":{"arguments":"{\"a\": 1}","name":"f"},"id":"1","type":"function"},` +
			`{"function":{"arguments":"{}","name":"f"},"id":"2","type":"function"}]},{"content":"x","role":"tool","tool_call_id":"1"}]}`},
	{responsesAsChat, `{"input":"hi","temperature":0,"tools":[{"type":"function","name":"f","parameters":{"b":1,"a":2}}],"tool_choice":"required","reasoning":{"effort":"low"}}`,
		`{"messages":[{"content":"hi","role":"user"}],"reasoning_effort":"low","temperature":0,"tool_choice":"required",` +
			`"tools":[{"function":{"name":"f","parameters":{"b":1,"a":2},"strict":true},"type":"function"}]}`},
	{responsesAsChat, `{"instructions":null,"input":"hi","tools":[{"type":"web_search"},{"type":"namespace","tools":[{}]}],"conversation":"c","text":{"verbosity":"low"}}`,
		`{"conversation":"c","messages":[{"content":"","role":"system"},{"content":"hi","role":"user"}],"text":{"verbosity":"low"}}`},
	{responsesAsChat, `{"input":[{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"},{"text":"?"}],"encrypted_content":"e"},
		{"type":"message","id":"m","status":"completed","role":"assistant","content":[{"type":"output_text","text":"a"}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"b"}]}]}`,
		`{"messages":[{"content":[{"text":"a","type":"text"},{"text":"b","type":"text"}],"reasoning_content":"hm","role":"assistant"}]}`},
	{responsesAsChat, `{"input":[{"type":"message","id":"m","status":"completed","role":"assistant","content":"a"},{"type":"reasoning","summary":[],"content":"hm"}]}`,
		`{"messages":[{"content":[{"text":"a","type":"text"}],"id":"m","reasoning_content":"hm","role":"assistant"}]}`},
	{responsesAsChat, `{"input":[{"role":"assistant","content":"b"}]}`, ""},
	{responsesAsChat, `{"input":[{"type":"function_call","name":"f"}]}`, ""},
	{responsesAsChat, `{"input":[{"type":"reasoning","summary":[]}]}`, ""},
	{responsesAsChat, `{"input":[{"type":"reasoning","summary":[],"content":null,"encrypted_content":"e"}]}`, ""},
	{responsesAsChat, `{"input":[{"type":"custom_tool_call","call_id":"1","name":"f","input":"x"}]}`, ""},
	{responsesAsChat, `{"input":"hi","tools":null}`, ""},
	{responsesAsChat, `{"input":"hi","previous_response_id":"r1"}`, ""},
	{responsesAsChat, `{"input":[{"role":"user","content":[{"type":"input_image"}]}]}`, ""},
	{messagesAsChat, `{"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}`,
		`{"messages":[{"content":"s","role":"system"},{"content":[{"type":"text","text":"a"}],"role":"user"}]}`},
	{messagesAsChat, `{"system":[{"type":"text","text":"x-anthropic-billing-header: v=1; cch=a51e5;You"},{"type":"text","text":" are"}],"messages":[{"role":"user","content":"a"}]}`,
		`{"messages":[{"content":"x-anthropic-billing-header: v=1; cch=fffff;You are","role":"system"},{"role":"user","content":"a"}]}`},
	{messagesAsChat, `{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"tool_use","id":"1","name":"f","input":{"b": "é\n", "a": [1, 2.5, null, {}]}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]},{"type":"text","text":"and?"}]}],
		"tools":[{"name":"f","description":"d","input_schema":{"z":1,"a":2}}],"tool_choice":{"type":"any"},"thinking":{"type":"enabled","budget_tokens":5},"stop_sequences":["x"]}`,
		`{"messages":[{"content":"","reasoning_content":"hm","role":"assistant","tool_calls":[{"function":{"arguments":"{\"b\":\"é\\n\",\"a\":[1,2.5,null,{}]}","name":"f"},"id":"1","type":"function"}]},` +
			`{"content":[{"type":"text","text":"and?"}],"role":"user"},{"content":"xy","role":"tool","tool_call_id":"1"}],"thinking_budget_tokens":5,"tool_choice":"required",` +
			`"tools":[{"function":{"description":"d","name":"f","parameters":{"z":1,"a":2}},"type":"function"}]}`},
	{messagesAsChat, `{"messages":[{"role":"user","content":[{"type":"image"}]}]}`, ""},
	{messagesAsChat, `{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image"}]}]}]}`, ""},
	{messagesAsChat, `{"system":[{"type":"news"},{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"news"},{"type":"text","text":"a"}]},{"role":"assistant"},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"auto"},{"type":"document"}]},{"role":"user","content":null}],"tools":[{"type":"web_search_20250305","name":"w"}]}`,
		`{"messages":[{"content":"s","role":"system"},{"content":[{"type":"text","text":"a"}],"role":"user"},{"content":"auto","role":"tool","tool_call_id":"1"},{"role":"user","content":null}],` +
			`"tools":[{"function":{"description":"","name":"w","parameters":{}},"type":"function"}]}`},
	{messagesAsChat, `{"messages":3}`, ""},
}

func TestOtherWordingsOfChats(t *testing.T) {
	for _, c := range wordings {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(c.body), &fields); err != nil {
			t.Fatal(err)
		}
		got := c.f(fields)
		if string(got.body) != c.want || (got.err == nil) != (c.want != "") {
			t.Errorf("%s became\n%s (%v), expected\n%s", c.body, got.body, got.err, c.want)
		}
		if c.want == "" && !errors.Is(got.err, PassBody) && !errors.Is(got.err, PassMedia) {
			t.Errorf("%s: %v", c.body, got.err)
		}
	}
}

func TestDump(t *testing.T) {
	for in, want := range map[string]string{
		` { "b" : [ 1 , { } , [ ] , "a:,b" ] , "a" : -1.5e3 , "c" : { "d" : null , "e" : true } } `:                                 `{"b":[1,{},[],"a:,b"],"a":-1500.0,"c":{"d":null,"e":true}}`,
		`"\u00e9\u003c\n\u2028\u0001\u007f\\u2028"`:                                                                                 "\"é<\\n\u2028\\u0001\x7f\\\\u2028\"",
		`[1.0,1e20,1e-7,0.1,-0,-0.0,1E5,5e-324,1e15,1e14,123456.789e3,0.00012,0.000012,18446744073709551615,123456789012345678901]`: `[1.0,1e+20,1e-07,0.1,0,-0.0,100000.0,5e-324,1e+15,100000000000000.0,123456789.0,0.00012,1.2e-05,18446744073709551615,1.2345678901234568e+20]`,
		`7`:     `7`,
		`{"a":`: "",
		``:      "",
	} {
		if got, err := dump(json.RawMessage(in)); got != want || (err == nil) != (want != "") {
			t.Errorf("%s became %s (%v), expected %s", in, got, err, want)
		}
	}
}
