package llamaserver

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/obs/figures"
)

// exampleOf is a request as a row of the tables in docs/llama-server.md has it.
type exampleOf struct {
	of   string // the row's first cell: endpoints, or a field
	path string
	body any    // an object's fields come on top of those that every request to such a path has
	want string // "kept", or X-Dormouse; empty: there is no such header
}

const (
	wrongBody = "pass; reason=not_understood"
	elsewhere = "pass; reason=unknown_endpoint"
)

// endpoints are one request to each endpoint, as in the docs' first table.
var endpoints = []exampleOf{
	{"`/completion`, `/completions`, `/v1/completions`", "/completion", object{}, "kept"},
	{"`/completion`, `/completions`, `/v1/completions`", "/completions", object{}, "kept"},
	{"`/completion`, `/completions`, `/v1/completions`", "/v1/completions", object{}, "kept"},
	{"`/chat/completions`, `/v1/chat/completions`", "/chat/completions", object{}, "kept"},
	{"`/chat/completions`, `/v1/chat/completions`", "/v1/chat/completions", object{}, "kept"},
	{"`/responses`, `/v1/responses`", "/responses", object{}, "kept"},
	{"`/responses`, `/v1/responses`", "/v1/responses", object{}, "kept"},
	{"`/v1/messages`", "/v1/messages", object{}, "kept"},
	{"`/infill`", "/infill", object{"input_prefix": "a", "input_suffix": "b"}, elsewhere},
	{"`/embedding`, `/embeddings`, `/v1/embeddings`", "/embedding", object{"content": "a"}, elsewhere},
	{"`/embedding`, `/embeddings`, `/v1/embeddings`", "/embeddings", object{"input": "a"}, elsewhere},
	{"`/embedding`, `/embeddings`, `/v1/embeddings`", "/v1/embeddings", object{"input": "a"}, elsewhere},
	{"`/rerank`, `/reranking`, `/v1/rerank`, `/v1/reranking`", "/rerank", object{"query": "a", "documents": []string{"b"}}, elsewhere},
	{"`/rerank`, `/reranking`, `/v1/rerank`, `/v1/reranking`", "/reranking", object{"query": "a", "documents": []string{"b"}}, elsewhere},
	{"`/rerank`, `/reranking`, `/v1/rerank`, `/v1/reranking`", "/v1/rerank", object{"query": "a", "documents": []string{"b"}}, elsewhere},
	{"`/rerank`, `/reranking`, `/v1/rerank`, `/v1/reranking`", "/v1/reranking", object{"query": "a", "documents": []string{"b"}}, elsewhere},
	{"`/audio/transcriptions`, `/v1/audio/transcriptions`", "/audio/transcriptions", object{}, elsewhere},
	{"`/audio/transcriptions`, `/v1/audio/transcriptions`", "/v1/audio/transcriptions", object{}, elsewhere},
	{"`/v1/systemone`", "/v1/systemone", object{"state": "a"}, elsewhere},
	{"`/predict`", "/predict", object{"instances": []object{{"@requestFormat": "completions", "prompt": "a"}}}, elsewhere},
	{"`/tokenize`, `/detokenize`, `/apply-template`", "/tokenize", object{"content": "a"}, ""},
	{"`/tokenize`, `/detokenize`, `/apply-template`", "/detokenize", object{"tokens": []int{5}}, ""},
	{"`/tokenize`, `/detokenize`, `/apply-template`", "/apply-template", object{"messages": []object{{"role": "user", "content": "a"}}}, ""},
	{"`/v1/messages/count_tokens`, `/responses/input_tokens`, `/v1/responses/input_tokens`, `/chat/completions/input_tokens`, `/v1/chat/completions/input_tokens`", "/v1/messages/count_tokens", object{"messages": []object{{"role": "user", "content": "a"}}}, ""},
	{"`/v1/messages/count_tokens`, `/responses/input_tokens`, `/v1/responses/input_tokens`, `/chat/completions/input_tokens`, `/v1/chat/completions/input_tokens`", "/responses/input_tokens", object{"input": "a"}, ""},
	{"`/v1/messages/count_tokens`, `/responses/input_tokens`, `/v1/responses/input_tokens`, `/chat/completions/input_tokens`, `/v1/chat/completions/input_tokens`", "/v1/responses/input_tokens", object{"input": "a"}, ""},
	{"`/v1/messages/count_tokens`, `/responses/input_tokens`, `/v1/responses/input_tokens`, `/chat/completions/input_tokens`, `/v1/chat/completions/input_tokens`", "/chat/completions/input_tokens", object{"messages": []object{{"role": "user", "content": "a"}}}, ""},
	{"`/v1/messages/count_tokens`, `/responses/input_tokens`, `/v1/responses/input_tokens`, `/chat/completions/input_tokens`, `/v1/chat/completions/input_tokens`", "/v1/chat/completions/input_tokens", object{"messages": []object{{"role": "user", "content": "a"}}}, ""},
	{"`/v1/chat/completions/control`, `/v1/stream/…`, `/v1/streams/lookup`", "/v1/chat/completions/control", object{"id": "a"}, ""},
	{"`/v1/chat/completions/control`, `/v1/stream/…`, `/v1/streams/lookup`", "/v1/streams/lookup", object{"conversation_ids": []string{"a"}}, ""},
	{"`/tools`, `/cors-proxy`", "/tools", object{}, ""},
	{"`/tools`, `/cors-proxy`", "/cors-proxy", object{}, ""},
	{"`POST /slots/…`", "/slots/0?action=erase", object{}, ""},
	{"`POST /lora-adapters`, `/props`, `/models/…`", "/lora-adapters", "[]", ""},
	{"`POST /lora-adapters`, `/props`, `/models/…`", "/props", object{}, ""},
	{"`POST /lora-adapters`, `/props`, `/models/…`", "/models/load", object{"model": "a"}, ""},
	{"another path", "/v1/images/generations", object{}, elsewhere},
}

var (
	schema     = object{"type": "object", "properties": object{"path": object{"type": "string"}}}
	chatTool   = object{"type": "function", "function": object{"name": "read", "description": "reads", "parameters": schema}}
	flatTool   = object{"type": "function", "name": "read", "description": "reads", "parameters": schema}
	searchTool = object{"type": "web_search", "external_web_access": true}
	nestedTool = object{"type": "namespace", "name": "agents", "description": "more", "tools": []object{flatTool}}
	image      = object{"type": "image_url", "image_url": object{"url": "data:image/png;base64,AAAA"}}
	user       = object{"role": "user", "content": longer}
	said       = object{"type": "message", "role": "user", "content": []object{{"type": "input_text", "text": longer}}}
	toolAnswer = object{"type": "message", "role": "assistant", "id": "m1", "status": "completed", "content": []object{{"type": "output_text", "text": "I saw it."}}}
)

// longer is a text that is worth being kept.
const longer = "The little dog ran to the park and saw a big tree. It was very happy, and sat down beside it."

// and is a list of messages that ends with what these are.
func and(of ...object) []object { return append([]object{user}, of...) }

func items(of ...object) []object { return append([]object{said}, of...) }

// shapes are one request with each field that shapes a prompt, as in the docs' second table.
var shapes = map[string][]exampleOf{
	"/completion": {
		{"`prompt`: a text, tokens, both mixed, one in a list", "", object{"prompt": []any{longer}}, "kept"},
		{"`prompt`: a text, tokens, both mixed, one in a list", "", object{"prompt": []any{5, longer, 6}}, "kept"},
		{"`prompt`: a text, tokens, both mixed, one in a list", "", object{"prompt": object{"prompt_string": longer}}, "kept"},
		{"`prompt`: several", "", object{"prompt": []any{longer, "b"}}, "pass; reason=several_answers"},
		{"`prompt` with `multimodal_data`", "", object{"prompt": object{"prompt_string": longer, "multimodal_data": []string{}}}, "pass; reason=media"},
		{"`n`, `n_cmpl` above 1", "", object{"n_cmpl": 2}, "pass; reason=several_answers"},
		{"`cache_prompt`: false", "", object{"cache_prompt": false}, "pass; reason=lookup_off"},
		{"`id_slot`", "", object{"id_slot": 0}, "pass; reason=slot_chosen"},
		{"`n_cache_reuse` above 0", "", object{"n_cache_reuse": 8}, "pass; reason=rows_shifted"},
		{"`json_schema`, `grammar`", "", object{"json_schema": schema}, "kept"},
		{"`json_schema`, `grammar`", "", object{"grammar": "root ::= [a-z ]*"}, "kept"},
		{"`stream`, `temperature`, `seed`, `stop`, `n_predict`, `n_keep`, `logit_bias`, `samplers`, …", "", object{
			"stream": true, "temperature": 0.5, "seed": 4, "stop": []string{"x"}, "n_keep": 3, "logit_bias": []any{}, "top_k": 3, "ignore_eos": false, "return_tokens": true,
		}, "kept"},
	},
	"/v1/completions": {
		{"`suffix`, `best_of`: 1, `user`", "", object{"suffix": "the end", "best_of": 1, "user": "u"}, "kept"},
		{"`best_of` above 1", "", object{"best_of": 2}, "pass; reason=several_answers"},
	},
	"/v1/chat/completions": {
		{"`messages`: texts, `developer`, `reasoning_content`, calls of functions and their results", "", object{"messages": []object{
			{"role": "developer", "content": "You help."}, user,
			{"role": "assistant", "content": nil, "reasoning_content": "I look.", "tool_calls": []object{{"id": "1", "type": "function", "function": object{"name": "read", "arguments": `{"path": "a"}`}}}},
			{"role": "tool", "tool_call_id": "1", "content": []object{{"type": "text", "text": "Once"}, {"type": "text", "text": "upon"}}},
		}}, "kept"},
		{"`messages` with images, sound or video", "", object{"messages": and(object{"role": "user", "content": []object{image}})}, "pass; reason=media"},
		{"`messages` with parts of other types", "", object{"messages": and(object{"role": "user", "content": []object{{"type": "refusal", "refusal": "no"}}})}, wrongBody + "; type=refusal"},
		{"`messages` that the server refuses", "", object{"messages": and(object{"role": "assistant"})}, wrongBody},
		{"a last message of the assistant; `add_generation_prompt`, `continue_final_message`", "", object{"messages": and(object{"role": "assistant", "content": "It was"})}, "kept"},
		{"a last message of the assistant; `add_generation_prompt`, `continue_final_message`", "", object{"add_generation_prompt": false}, "kept"},
		{"a last message of the assistant; `add_generation_prompt`, `continue_final_message`", "", object{
			"messages": and(object{"role": "assistant", "content": "Then it"}), "continue_final_message": true, "add_generation_prompt": false,
		}, "kept"},
		{"`tools` that are functions, `tool_choice`, `parallel_tool_calls`", "", object{"tools": []object{chatTool}, "parallel_tool_calls": true}, "kept"},
		{"`tools` that are functions, `tool_choice`, `parallel_tool_calls`", "", object{"tools": []object{chatTool}, "tool_choice": "none"}, "kept"},
		{"`tools` that are functions, `tool_choice`, `parallel_tool_calls`", "", object{"tools": []object{chatTool}, "tool_choice": "required"}, "kept"},
		{"`tools` that are functions, `tool_choice`, `parallel_tool_calls`", "", object{"tools": []object{chatTool}, "tool_choice": object{"type": "function", "function": object{"name": "read"}}}, "kept"},
		{"`tools` of another type", "", object{"tools": []object{chatTool, {"type": "custom", "custom": object{"name": "x"}}}}, "pass; reason=tools; type=custom"},
		{"`functions`", "", object{"functions": []object{{"name": "read"}}}, "kept"},
		{"`response_format`, `json_schema`, `grammar`", "", object{"response_format": object{"type": "json_object"}}, "kept"},
		{"`response_format`, `json_schema`, `grammar`", "", object{"response_format": object{"type": "json_schema", "json_schema": object{"name": "a", "schema": schema}}}, "kept"},
		{"`response_format`, `json_schema`, `grammar`", "", object{"json_schema": schema}, "kept"},
		{"`response_format`, `json_schema`, `grammar`", "", object{"grammar": "root ::= [a-z ]*"}, "kept"},
		{"`chat_template_kwargs`, `enable_thinking`, `reasoning_effort`, `reasoning_format`, `thinking_budget_tokens`", "", object{"chat_template_kwargs": object{"enable_thinking": false, "reasoning_effort": "low"}}, "kept"},
		{"`chat_template_kwargs`, `enable_thinking`, `reasoning_effort`, `reasoning_format`, `thinking_budget_tokens`", "", object{"reasoning_effort": "high", "reasoning_format": "none", "thinking_budget_tokens": 8}, "kept"},
		{"`chat_template_kwargs`, `enable_thinking`, `reasoning_effort`, `reasoning_format`, `thinking_budget_tokens`", "", object{"enable_thinking": true}, "kept"},
		{"`chat_template`, `system`, `instructions`, `documents`, `input`, `prediction`, `modalities`", "", object{
			"chat_template": "x", "system": "y", "instructions": "z", "documents": []object{{"a": "b"}}, "input": "i", "prediction": object{"type": "content", "content": "c"}, "modalities": []string{"text"},
		}, "kept"},
		{"`n` above 1", "", object{"n": 2}, "pass; reason=several_answers"},
		{"`stream`, `stream_options`, `logprobs`, `max_tokens`, `max_completion_tokens`, `user`, `store`, …", "", object{
			"stream": true, "stream_options": object{"include_usage": true}, "user": "u", "store": false, "max_completion_tokens": 4, "return_progress": false,
		}, "kept"},
	},
	"/v1/responses": {
		{"`input`: a text, messages of user, system, developer and assistant", "", object{"input": longer}, "kept"},
		{"`input`: a text, messages of user, system, developer and assistant", "", object{"input": items(
			toolAnswer, toolAnswer, object{"role": "system", "content": "Go on."}, object{"role": "developer", "content": []object{{"type": "input_text", "text": "And on."}}},
		)}, "kept"},
		{"`input`: `reasoning` with its text, `function_call`, `function_call_output`", "", object{"input": items(
			object{"type": "reasoning", "id": "r1", "summary": []any{}, "content": []object{{"type": "reasoning_text", "text": "I look."}}, "encrypted_content": "x"}, toolAnswer,
			object{"type": "function_call", "call_id": "1", "name": "read", "namespace": "agents", "arguments": `{"path": "a"}`}, object{"type": "function_call", "call_id": "2", "name": "read", "arguments": "{}"},
			object{"type": "function_call_output", "call_id": "1", "output": "Once"}, object{"type": "function_call_output", "call_id": "2", "output": []object{{"type": "input_text", "text": "upon"}}},
		)}, "kept"},
		{"`input`: `reasoning` that is only encrypted", "", object{"input": items(object{"type": "reasoning", "summary": []any{}, "encrypted_content": "x"}, toolAnswer)}, wrongBody + "; type=reasoning"},
		{"`input`: items of other types", "", object{"input": items(object{"type": "custom_tool_call", "call_id": "1", "name": "x", "input": "a"})}, wrongBody + "; type=custom_tool_call"},
		{"`input`: items of other types", "", object{"input": items(object{"type": "item_reference", "id": "1"})}, wrongBody + "; type=item_reference"},
		{"`input` with images or files", "", object{"input": items(object{"role": "user", "content": []object{{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}}})}, "pass; reason=media"},
		{"`instructions`", "", object{"instructions": "You help."}, "kept"},
		{"`instructions`", "", object{"instructions": nil}, "kept"},
		{"`tools` that are functions, `tool_choice`, `parallel_tool_calls`", "", object{"tools": []object{flatTool}, "tool_choice": "required", "parallel_tool_calls": false}, "kept"},
		{"`tools` that are functions, `tool_choice`, `parallel_tool_calls`", "", object{"tools": []object{flatTool}, "tool_choice": object{"type": "function", "name": "read"}}, "kept"},
		{"`tools` of other types: `web_search`, `namespace`, `custom`, `local_shell`, `image_generation`, `mcp`", "", object{"tools": []object{searchTool}}, "kept"},
		{"`tools` of other types: `web_search`, `namespace`, `custom`, `local_shell`, `image_generation`, `mcp`", "", object{"tools": []object{
			nestedTool, flatTool, searchTool, {"type": "custom", "name": "x"}, {"type": "local_shell"}, {"type": "image_generation"}, {"type": "mcp", "server_label": "x"},
		}}, "kept"},
		{"`reasoning`, `reasoning_effort`", "", object{"reasoning": object{"effort": "high", "summary": "auto"}}, "kept"},
		{"`reasoning`, `reasoning_effort`", "", object{"reasoning_effort": "low"}, "kept"},
		{"`previous_response_id`", "", object{"previous_response_id": "resp_1"}, wrongBody + "; type=previous_response_id"},
		{"`conversation`, `prompt`, `text`, `truncation`, `include`, `metadata`, `prompt_cache_key`, `store`, `stream`, …", "", object{
			"conversation": "c", "prompt": object{"id": "p"}, "text": object{"verbosity": "low"}, "truncation": "auto", "include": []string{"reasoning.encrypted_content"},
			"prompt_cache_key": "k", "store": false, "stream": true, "client_metadata": object{"a": "b"}, "previous_response_id": nil,
		}, "kept"},
	},
	"/v1/messages": {
		{"`system`: a text, or parts of text", "", object{"system": "You help."}, "kept"},
		{"`system`: a text, or parts of text", "", object{"system": []object{{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=a5145;You help."}, {"type": "text", "text": "Well.", "cache_control": object{"type": "ephemeral"}}}}, "kept"},
		{"`messages`: texts, `thinking`, `redacted_thinking`, `tool_use`, `tool_result`", "", object{"messages": and(
			object{"role": "assistant", "content": []object{
				{"type": "redacted_thinking", "data": "x"}, {"type": "thinking", "thinking": "I look.", "signature": "s"}, {"type": "text", "text": "I read it."},
				{"type": "tool_use", "id": "1", "name": "read", "input": json.RawMessage(`{"a": 1.0, "b": 1e5, "c": "é\u2028<\u0007", "d": -0}`)},
			}},
			object{"role": "user", "content": []object{{"type": "tool_result", "tool_use_id": "1", "content": []object{{"type": "text", "text": "Once"}}}, {"type": "text", "text": "And then?"}}},
		)}, "kept"},
		{"`messages` with blocks of other types: `document`, `server_tool_use`, `web_search_tool_result`, …", "", object{"messages": and(
			object{"role": "assistant", "content": []object{{"type": "server_tool_use", "id": "1", "name": "web_search", "input": object{}}, {"type": "text", "text": "I read it."}}},
			object{"role": "user", "content": []object{{"type": "document", "source": object{}}, {"type": "text", "text": "And then?"}}},
		)}, "kept"},
		{"`messages` with images", "", object{"messages": and(object{"role": "user", "content": []object{{"type": "image", "source": object{"type": "base64", "data": "AAAA"}}}})}, "pass; reason=media"},
		{"`tools`, also those of the provider (`web_search_20250305`, `bash_20250124`, …), `tool_choice`", "", object{
			"tools": []object{{"name": "read", "description": "reads", "input_schema": schema}}, "tool_choice": object{"type": "any"},
		}, "kept"},
		{"`tools`, also those of the provider (`web_search_20250305`, `bash_20250124`, …), `tool_choice`", "", object{
			"tools": []object{{"name": "read", "input_schema": schema}, {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}}, "tool_choice": object{"type": "none"},
		}, "kept"},
		{"`thinking`, `output_config`, `chat_template_kwargs`", "", object{"thinking": object{"type": "enabled", "budget_tokens": 8}, "output_config": object{"effort": "low"}}, "kept"},
		{"`thinking`, `output_config`, `chat_template_kwargs`", "", object{"thinking": object{"type": "adaptive"}, "chat_template_kwargs": object{"reasoning_effort": "low"}}, "kept"},
		{"`id_slot`, `cache_prompt`, `n`, `n_cache_reuse`", "", object{"id_slot": 1, "cache_prompt": false, "n": 2, "n_cache_reuse": 8}, "kept"},
		{"`stream`, `metadata`, `stop_sequences`, `context_management`, …", "", object{"stream": true, "metadata": object{"user_id": "u"}, "stop_sequences": []string{"x"}, "context_management": object{}}, "kept"},
	},
}

// basis is what every request to a path has.
func basis(path string) object {
	b := object{"max_tokens": 4, "temperature": 0, "cache_prompt": true}
	switch {
	case strings.HasSuffix(path, "messages"), strings.HasSuffix(path, "chat/completions"):
		b["messages"] = []object{user}
	case strings.HasSuffix(path, "/responses"):
		b["input"] = longer
		b["max_output_tokens"] = 4
	case strings.HasSuffix(path, "/completion"), strings.HasSuffix(path, "/completions"):
		b["prompt"] = longer
		b["n_predict"] = 4
	default:
		return object{}
	}
	return b
}

// Every endpoint of the server, and each field that shapes a prompt, is kept or passes as the tables in docs/llama-server.md say. What is kept has as
// many tokens for the front as for the server, and is there the second time.
func TestEveryEndpointAndField(t *testing.T) {
	template, err := filepath.Abs("testdata/tools.jinja")
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{"DORMOUSE_LLAMA_SERVER", "DORMOUSE_LLAMA_SERVER_OTHER"} {
		t.Run(server, func(t *testing.T) {
			other(t, server)
			r := start(t, Options{}, "-c", "4096", "-np", "1", "--jinja", "--chat-template-file", template)
			for _, e := range endpoints {
				r.example(t, e)
			}
			for path, list := range shapes {
				for _, e := range list {
					e.path = path
					r.example(t, e)
				}
			}
			r.saved() // with each save the tokens in the slot are compared
			if log := r.log.String(); strings.Contains(log, "other tokens") {
				t.Errorf("prompts were rendered otherwise:\n%s", log)
			}
		})
	}
}

// example sends a request, twice if it is kept.
func (r *rig) example(t *testing.T, e exampleOf) {
	t.Helper()
	body := e.body
	if more, ok := e.body.(object); ok {
		all := basis(e.path)
		maps.Copy(all, more)
		body = all
	}
	asked := func() (reply, int) {
		before := r.requests()
		got := ask(t, t.Context(), r.url, e.path, body)
		if e.want == "" {
			return got, 0
		}
		r.eventually(func() bool { return r.requests() > before || strings.HasPrefix(got.header, "pass") })
		return got, r.front.Figures().Recent[0].Asked
	}
	got, _ := asked()
	if e.want != "kept" {
		if got.header != e.want {
			t.Errorf("%s %s %v: %d %q, expected %q\n%s", e.path, e.of, e.body, got.status, got.header, e.want, got.body)
		}
		return
	}
	first := got.header
	got, tokens := asked()
	for range 3 { // by its measurements the front may compute what it has found; then the slot has it
		if strings.HasPrefix(got.header, "miss; reason="+figures.TooSlow) {
			got, tokens = asked()
		}
	}
	if kept := strings.HasPrefix(got.header, "slot; ") || strings.HasPrefix(got.header, "hit; "); got.status != 200 || !kept || got.a.Cached+got.a.Prompt != tokens || got.a.Cached < tokens-1 {
		t.Errorf("%s %s %v: %d, first %q, then %q: the server has %d tokens and %d of them cached, the front %d\n%s",
			e.path, e.of, e.body, got.status, first, got.header, got.a.Cached+got.a.Prompt, got.a.Cached, tokens, got.body[:min(len(got.body), 300)])
	}
}

// requests is how many requests have ended.
func (r *rig) requests() (n int64) {
	for _, c := range r.front.Figures().Requests {
		n += c
	}
	return n
}

// The tables in docs/llama-server.md have a row for each of these examples, which says what is so, and no others.
func TestDocsNameEveryEndpointAndField(t *testing.T) {
	b, err := os.ReadFile("../../docs/llama-server.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tables, ok := strings.Cut(string(b), "## Every endpoint and field\n")
	if !ok {
		t.Fatal("there is no such section")
	}
	tables, _, _ = strings.Cut(tables, "\n## ")
	rows := map[string]string{}
	head := ""
	for _, m := range regexp.MustCompile(`(?m)^(?:### (.*)|\| (.+?) \| (.+?) \| .*\|)$`).FindAllStringSubmatch(tables, -1) {
		if m[1] != "" {
			head = strings.Trim(m[1], "`")
		} else if !strings.HasPrefix(m[2], "---") && m[3] != " " && m[2] != "endpoint" && m[2] != "field" {
			rows[head+" "+m[2]] = m[3]
		}
	}
	used := map[string]bool{}
	check := func(head string, e exampleOf) {
		want := "kept"
		switch pass, ok := strings.CutPrefix(e.want, "pass; reason="); {
		case ok:
			want = "passes: `" + strings.Split(pass, ";")[0] + "`"
		case e.want == "":
			want = "no prompt"
		}
		row := head + " " + e.of
		if used[row] = true; rows[row] != want {
			t.Errorf("the docs say of %q %q, and it is %q", row, rows[row], want)
		}
	}
	for _, e := range endpoints {
		check("Endpoints", e)
	}
	for path, list := range shapes {
		for _, e := range list {
			check(path, e)
		}
	}
	for row := range rows {
		if !used[row] {
			t.Errorf("nobody tries %q", row)
		}
	}
}

// What Codex 0.171 sends as it is installed, cut short: its second turn is found, also after a kill of the server.
func TestCodexAsInstalled(t *testing.T) {
	template, err := filepath.Abs("testdata/tools.jinja")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("testdata/codex.json")
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		object
		Input []json.RawMessage
	}
	if err := json.Unmarshal(raw, &body.object); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		t.Fatal(err)
	}
	r := start(t, Options{}, "-c", "8192", "-np", "1", "--override-kv", "llama.context_length=int:8192", "-n", "4", "--jinja", "--chat-template-file", template)
	turn := func(items int) reply {
		body.object["input"] = body.Input[:items]
		before := r.requests()
		got := r.ask("/v1/responses", body.object)
		r.eventually(func() bool { return r.requests() > before })
		if tokens := r.front.Figures().Recent[0].Asked; got.status != 200 || got.a.Cached+got.a.Prompt != tokens {
			t.Fatalf("%d %s: the server has %d tokens, the front %d\n%s", got.status, got.header, got.a.Cached+got.a.Prompt, tokens, got.body)
		}
		return got
	}
	if got := turn(4); got.header != "miss; reason=nothing_stored" {
		t.Errorf("the first turn: %s", got.header)
	}
	if got := turn(8); !strings.HasPrefix(got.header, "slot; ") {
		t.Errorf("the second turn: %s", got.header)
	}
	r.saved()
	r.killServer()
	if got := turn(len(body.Input)); !strings.HasPrefix(got.header, "hit; ") || got.a.Prompt > 100 {
		t.Errorf("after a kill: %s, %d tokens are computed", got.header, got.a.Prompt)
	}
	if k, _ := r.front.servedFor("").ready(); len(k.prompts.counted) != 1 || !k.prompts.counted["responses with tools, reasoning, parallel_tool_calls, type namespace,web_search"] {
		t.Errorf("the server was asked for its count of %v", k.prompts.counted)
	}
}
