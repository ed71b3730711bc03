package dialogs_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
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
	{"`/completion`, `/completions`, `/v1/completions`", "/completion", rig.Object{}, "kept"},
	{"`/completion`, `/completions`, `/v1/completions`", "/completions", rig.Object{}, "kept"},
	{"`/completion`, `/completions`, `/v1/completions`", "/v1/completions", rig.Object{}, "kept"},
	{"`/chat/completions`, `/v1/chat/completions`", "/chat/completions", rig.Object{}, "kept"},
	{"`/chat/completions`, `/v1/chat/completions`", "/v1/chat/completions", rig.Object{}, "kept"},
	{"`/responses`, `/v1/responses`", "/responses", rig.Object{}, "kept"},
	{"`/responses`, `/v1/responses`", "/v1/responses", rig.Object{}, "kept"},
	{"`/v1/messages`", "/v1/messages", rig.Object{}, "kept"},
	{"`/infill`", "/infill", rig.Object{"input_prefix": "a", "input_suffix": "b"}, elsewhere},
	{"`/embedding`, `/embeddings`, `/v1/embeddings`", "/embedding", rig.Object{"content": "a"}, elsewhere},
	{"`/embedding`, `/embeddings`, `/v1/embeddings`", "/embeddings", rig.Object{"input": "a"}, elsewhere},
	{"`/embedding`, `/embeddings`, `/v1/embeddings`", "/v1/embeddings", rig.Object{"input": "a"}, elsewhere},
	{"`/rerank`, `/reranking`, `/v1/rerank`, `/v1/reranking`", "/rerank", rig.Object{"query": "a", "documents": []string{"b"}}, elsewhere},
	{"`/rerank`, `/reranking`, `/v1/rerank`, `/v1/reranking`", "/reranking", rig.Object{"query": "a", "documents": []string{"b"}}, elsewhere},
	{"`/rerank`, `/reranking`, `/v1/rerank`, `/v1/reranking`", "/v1/rerank", rig.Object{"query": "a", "documents": []string{"b"}}, elsewhere},
	{"`/rerank`, `/reranking`, `/v1/rerank`, `/v1/reranking`", "/v1/reranking", rig.Object{"query": "a", "documents": []string{"b"}}, elsewhere},
	{"`/audio/transcriptions`, `/v1/audio/transcriptions`", "/audio/transcriptions", rig.Object{}, elsewhere},
	{"`/audio/transcriptions`, `/v1/audio/transcriptions`", "/v1/audio/transcriptions", rig.Object{}, elsewhere},
	{"`/v1/systemone`", "/v1/systemone", rig.Object{"state": "a"}, elsewhere},
	{"`/predict`", "/predict", rig.Object{"instances": []rig.Object{{"@requestFormat": "completions", "prompt": "a"}}}, elsewhere},
	{"`/tokenize`, `/detokenize`, `/apply-template`", "/tokenize", rig.Object{"content": "a"}, ""},
	{"`/tokenize`, `/detokenize`, `/apply-template`", "/detokenize", rig.Object{"tokens": []int{5}}, ""},
	{"`/tokenize`, `/detokenize`, `/apply-template`", "/apply-template", rig.Object{"messages": []rig.Object{{"role": "user", "content": "a"}}}, ""},
	{"`/v1/messages/count_tokens`, `/responses/input_tokens`, `/v1/responses/input_tokens`, `/chat/completions/input_tokens`, `/v1/chat/completions/input_tokens`", "/v1/messages/count_tokens", rig.Object{"messages": []rig.Object{{"role": "user", "content": "a"}}}, ""},
	{"`/v1/messages/count_tokens`, `/responses/input_tokens`, `/v1/responses/input_tokens`, `/chat/completions/input_tokens`, `/v1/chat/completions/input_tokens`", "/responses/input_tokens", rig.Object{"input": "a"}, ""},
	{"`/v1/messages/count_tokens`, `/responses/input_tokens`, `/v1/responses/input_tokens`, `/chat/completions/input_tokens`, `/v1/chat/completions/input_tokens`", "/v1/responses/input_tokens", rig.Object{"input": "a"}, ""},
	{"`/v1/messages/count_tokens`, `/responses/input_tokens`, `/v1/responses/input_tokens`, `/chat/completions/input_tokens`, `/v1/chat/completions/input_tokens`", "/chat/completions/input_tokens", rig.Object{"messages": []rig.Object{{"role": "user", "content": "a"}}}, ""},
	{"`/v1/messages/count_tokens`, `/responses/input_tokens`, `/v1/responses/input_tokens`, `/chat/completions/input_tokens`, `/v1/chat/completions/input_tokens`", "/v1/chat/completions/input_tokens", rig.Object{"messages": []rig.Object{{"role": "user", "content": "a"}}}, ""},
	{"`/v1/chat/completions/control`, `/v1/stream/…`, `/v1/streams/lookup`", "/v1/chat/completions/control", rig.Object{"id": "a"}, ""},
	{"`/v1/chat/completions/control`, `/v1/stream/…`, `/v1/streams/lookup`", "/v1/streams/lookup", rig.Object{"conversation_ids": []string{"a"}}, ""},
	{"`/tools`, `/cors-proxy`", "/tools", rig.Object{}, ""},
	{"`/tools`, `/cors-proxy`", "/cors-proxy", rig.Object{}, ""},
	{"`POST /slots/…`", "/slots/0?action=erase", rig.Object{}, ""},
	{"`POST /lora-adapters`, `/props`, `/models/…`", "/lora-adapters", "[]", ""},
	{"`POST /lora-adapters`, `/props`, `/models/…`", "/props", rig.Object{}, ""},
	{"`POST /lora-adapters`, `/props`, `/models/…`", "/models/load", rig.Object{"model": "a"}, ""},
	{"another path", "/v1/images/generations", rig.Object{}, elsewhere},
}

var (
	schema     = rig.Object{"type": "object", "properties": rig.Object{"path": rig.Object{"type": "string"}}}
	chatTool   = rig.Object{"type": "function", "function": rig.Object{"name": "read", "description": "reads", "parameters": schema}}
	flatTool   = rig.Object{"type": "function", "name": "read", "description": "reads", "parameters": schema}
	searchTool = rig.Object{"type": "web_search", "external_web_access": true}
	nestedTool = rig.Object{"type": "namespace", "name": "agents", "description": "more", "tools": []rig.Object{flatTool}}
	image      = rig.Object{"type": "image_url", "image_url": rig.Object{"url": "data:image/png;base64,AAAA"}}
	user       = rig.Object{"role": "user", "content": rig.Longer}
	said       = rig.Object{"type": "message", "role": "user", "content": []rig.Object{{"type": "input_text", "text": rig.Longer}}}
	toolAnswer = rig.Object{"type": "message", "role": "assistant", "id": "m1", "status": "completed", "content": []rig.Object{{"type": "output_text", "text": "I saw it."}}}
)

// and is a list of messages that ends with what these are.
func and(of ...rig.Object) []rig.Object { return append([]rig.Object{user}, of...) }

func items(of ...rig.Object) []rig.Object { return append([]rig.Object{said}, of...) }

// shapes are one request with each field that shapes a prompt, as in the docs' second table.
var shapes = map[string][]exampleOf{
	"/completion": {
		{"`prompt`: a text, tokens, both mixed, one in a list", "", rig.Object{"prompt": []any{rig.Longer}}, "kept"},
		{"`prompt`: a text, tokens, both mixed, one in a list", "", rig.Object{"prompt": []any{5, rig.Longer, 6}}, "kept"},
		{"`prompt`: a text, tokens, both mixed, one in a list", "", rig.Object{"prompt": rig.Object{"prompt_string": rig.Longer}}, "kept"},
		{"`prompt`: several", "", rig.Object{"prompt": []any{rig.Longer, "b"}}, "pass; reason=several_answers"},
		{"`prompt` with `multimodal_data`", "", rig.Object{"prompt": rig.Object{"prompt_string": rig.Longer, "multimodal_data": []string{}}}, "pass; reason=media"},
		{"`n`, `n_cmpl` above 1", "", rig.Object{"n_cmpl": 2}, "pass; reason=several_answers"},
		{"`cache_prompt`: false", "", rig.Object{"cache_prompt": false}, "pass; reason=lookup_off"},
		{"`id_slot`", "", rig.Object{"id_slot": 0}, "pass; reason=slot_chosen"},
		{"`n_cache_reuse` above 0", "", rig.Object{"n_cache_reuse": 8}, "pass; reason=rows_shifted"},
		{"`json_schema`, `grammar`", "", rig.Object{"json_schema": schema}, "kept"},
		{"`json_schema`, `grammar`", "", rig.Object{"grammar": "root ::= [a-z ]*"}, "kept"},
		{"`stream`, `temperature`, `seed`, `stop`, `n_predict`, `n_keep`, `logit_bias`, `samplers`, …", "", rig.Object{
			"stream": true, "temperature": 0.5, "seed": 4, "stop": []string{"x"}, "n_keep": 3, "logit_bias": []any{}, "top_k": 3, "ignore_eos": false, "return_tokens": true,
		}, "kept"},
	},
	"/v1/completions": {
		{"`suffix`, `best_of`: 1, `user`", "", rig.Object{"suffix": "the end", "best_of": 1, "user": "u"}, "kept"},
		{"`best_of` above 1", "", rig.Object{"best_of": 2}, "pass; reason=several_answers"},
	},
	"/v1/chat/completions": {
		{"`messages`: texts, `developer`, `reasoning_content`, calls of functions and their results", "", rig.Object{"messages": []rig.Object{
			{"role": "developer", "content": "You help."}, user,
			{"role": "assistant", "content": nil, "reasoning_content": "I look.", "tool_calls": []rig.Object{{"id": "1", "type": "function", "function": rig.Object{"name": "read", "arguments": `{"path": "a"}`}}}},
			{"role": "tool", "tool_call_id": "1", "content": []rig.Object{{"type": "text", "text": "Once"}, {"type": "text", "text": "upon"}}},
		}}, "kept"},
		{"`messages` with images, sound or video", "", rig.Object{"messages": and(rig.Object{"role": "user", "content": []rig.Object{image}})}, "pass; reason=media"},
		{"`messages` with parts of other types", "", rig.Object{"messages": and(rig.Object{"role": "user", "content": []rig.Object{{"type": "refusal", "refusal": "no"}}})}, wrongBody + "; type=refusal"},
		{"`messages` that the server refuses", "", rig.Object{"messages": and(rig.Object{"role": "assistant"})}, wrongBody},
		{"a last message of the assistant; `add_generation_prompt`, `continue_final_message`", "", rig.Object{"messages": and(rig.Object{"role": "assistant", "content": "It was"})}, "kept"},
		{"a last message of the assistant; `add_generation_prompt`, `continue_final_message`", "", rig.Object{"add_generation_prompt": false}, "kept"},
		{"a last message of the assistant; `add_generation_prompt`, `continue_final_message`", "", rig.Object{
			"messages": and(rig.Object{"role": "assistant", "content": "Then it"}), "continue_final_message": true, "add_generation_prompt": false,
		}, "kept"},
		{"`tools` that are functions, `tool_choice`, `parallel_tool_calls`", "", rig.Object{"tools": []rig.Object{chatTool}, "parallel_tool_calls": true}, "kept"},
		{"`tools` that are functions, `tool_choice`, `parallel_tool_calls`", "", rig.Object{"tools": []rig.Object{chatTool}, "tool_choice": "none"}, "kept"},
		{"`tools` that are functions, `tool_choice`, `parallel_tool_calls`", "", rig.Object{"tools": []rig.Object{chatTool}, "tool_choice": "required"}, "kept"},
		{"`tools` that are functions, `tool_choice`, `parallel_tool_calls`", "", rig.Object{"tools": []rig.Object{chatTool}, "tool_choice": rig.Object{"type": "function", "function": rig.Object{"name": "read"}}}, "kept"},
		{"`tools` of another type", "", rig.Object{"tools": []rig.Object{chatTool, {"type": "custom", "custom": rig.Object{"name": "x"}}}}, "pass; reason=tools; type=custom"},
		{"`functions`", "", rig.Object{"functions": []rig.Object{{"name": "read"}}}, "kept"},
		{"`response_format`, `json_schema`, `grammar`", "", rig.Object{"response_format": rig.Object{"type": "json_object"}}, "kept"},
		{"`response_format`, `json_schema`, `grammar`", "", rig.Object{"response_format": rig.Object{"type": "json_schema", "json_schema": rig.Object{"name": "a", "schema": schema}}}, "kept"},
		{"`response_format`, `json_schema`, `grammar`", "", rig.Object{"json_schema": schema}, "kept"},
		{"`response_format`, `json_schema`, `grammar`", "", rig.Object{"grammar": "root ::= [a-z ]*"}, "kept"},
		{"`chat_template_kwargs`, `enable_thinking`, `reasoning_effort`, `reasoning_format`, `thinking_budget_tokens`", "", rig.Object{"chat_template_kwargs": rig.Object{"enable_thinking": false, "reasoning_effort": "low"}}, "kept"},
		{"`chat_template_kwargs`, `enable_thinking`, `reasoning_effort`, `reasoning_format`, `thinking_budget_tokens`", "", rig.Object{"reasoning_effort": "high", "reasoning_format": "none", "thinking_budget_tokens": 8}, "kept"},
		{"`chat_template_kwargs`, `enable_thinking`, `reasoning_effort`, `reasoning_format`, `thinking_budget_tokens`", "", rig.Object{"enable_thinking": true}, "kept"},
		{"`chat_template`, `system`, `instructions`, `documents`, `input`, `prediction`, `modalities`", "", rig.Object{
			"chat_template": "x", "system": "y", "instructions": "z", "documents": []rig.Object{{"a": "b"}}, "input": "i", "prediction": rig.Object{"type": "content", "content": "c"}, "modalities": []string{"text"},
		}, "kept"},
		{"`n` above 1", "", rig.Object{"n": 2}, "pass; reason=several_answers"},
		{"`stream`, `stream_options`, `logprobs`, `max_tokens`, `max_completion_tokens`, `user`, `store`, …", "", rig.Object{
			"stream": true, "stream_options": rig.Object{"include_usage": true}, "user": "u", "store": false, "max_completion_tokens": 4, "return_progress": false,
		}, "kept"},
	},
	"/v1/responses": {
		{"`input`: a text, messages of user, system, developer and assistant", "", rig.Object{"input": rig.Longer}, "kept"},
		{"`input`: a text, messages of user, system, developer and assistant", "", rig.Object{"input": items(
			toolAnswer, toolAnswer, rig.Object{"role": "system", "content": "Go on."}, rig.Object{"role": "developer", "content": []rig.Object{{"type": "input_text", "text": "And on."}}},
		)}, "kept"},
		{"`input`: `reasoning` with its text, `function_call`, `function_call_output`", "", rig.Object{"input": items(
			rig.Object{"type": "reasoning", "id": "r1", "summary": []any{}, "content": []rig.Object{{"type": "reasoning_text", "text": "I look."}}, "encrypted_content": "x"}, toolAnswer,
			rig.Object{"type": "function_call", "call_id": "1", "name": "read", "namespace": "agents", "arguments": `{"path": "a"}`}, rig.Object{"type": "function_call", "call_id": "2", "name": "read", "arguments": "{}"},
			rig.Object{"type": "function_call_output", "call_id": "1", "output": "Once"}, rig.Object{"type": "function_call_output", "call_id": "2", "output": []rig.Object{{"type": "input_text", "text": "upon"}}},
		)}, "kept"},
		{"`input`: `reasoning` that is only encrypted", "", rig.Object{"input": items(rig.Object{"type": "reasoning", "summary": []any{}, "encrypted_content": "x"}, toolAnswer)}, wrongBody + "; type=reasoning"},
		{"`input`: items of other types", "", rig.Object{"input": items(rig.Object{"type": "custom_tool_call", "call_id": "1", "name": "x", "input": "a"})}, wrongBody + "; type=custom_tool_call"},
		{"`input`: items of other types", "", rig.Object{"input": items(rig.Object{"type": "item_reference", "id": "1"})}, wrongBody + "; type=item_reference"},
		{"`input` with images or files", "", rig.Object{"input": items(rig.Object{"role": "user", "content": []rig.Object{{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}}})}, "pass; reason=media"},
		{"`instructions`", "", rig.Object{"instructions": "You help."}, "kept"},
		{"`instructions`", "", rig.Object{"instructions": nil}, "kept"},
		{"`tools` that are functions, `tool_choice`, `parallel_tool_calls`", "", rig.Object{"tools": []rig.Object{flatTool}, "tool_choice": "required", "parallel_tool_calls": false}, "kept"},
		{"`tools` that are functions, `tool_choice`, `parallel_tool_calls`", "", rig.Object{"tools": []rig.Object{flatTool}, "tool_choice": rig.Object{"type": "function", "name": "read"}}, "kept"},
		{"`tools` of other types: `web_search`, `namespace`, `custom`, `local_shell`, `image_generation`, `mcp`", "", rig.Object{"tools": []rig.Object{searchTool}}, "kept"},
		{"`tools` of other types: `web_search`, `namespace`, `custom`, `local_shell`, `image_generation`, `mcp`", "", rig.Object{"tools": []rig.Object{
			nestedTool, flatTool, searchTool, {"type": "custom", "name": "x"}, {"type": "local_shell"}, {"type": "image_generation"}, {"type": "mcp", "server_label": "x"},
		}}, "kept"},
		{"`reasoning`, `reasoning_effort`", "", rig.Object{"reasoning": rig.Object{"effort": "high", "summary": "auto"}}, "kept"},
		{"`reasoning`, `reasoning_effort`", "", rig.Object{"reasoning_effort": "low"}, "kept"},
		{"`previous_response_id`", "", rig.Object{"previous_response_id": "resp_1"}, wrongBody + "; type=previous_response_id"},
		{"`conversation`, `prompt`, `text`, `truncation`, `include`, `metadata`, `prompt_cache_key`, `store`, `stream`, …", "", rig.Object{
			"conversation": "c", "prompt": rig.Object{"id": "p"}, "text": rig.Object{"verbosity": "low"}, "truncation": "auto", "include": []string{"reasoning.encrypted_content"},
			"prompt_cache_key": "k", "store": false, "stream": true, "client_metadata": rig.Object{"a": "b"}, "previous_response_id": nil,
		}, "kept"},
	},
	"/v1/messages": {
		{"`system`: a text, or parts of text", "", rig.Object{"system": "You help."}, "kept"},
		{"`system`: a text, or parts of text", "", rig.Object{"system": []rig.Object{{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=a5145;You help."}, {"type": "text", "text": "Well.", "cache_control": rig.Object{"type": "ephemeral"}}}}, "kept"},
		{"`messages`: texts, `thinking`, `redacted_thinking`, `tool_use`, `tool_result`", "", rig.Object{"messages": and(
			rig.Object{"role": "assistant", "content": []rig.Object{
				{"type": "redacted_thinking", "data": "x"}, {"type": "thinking", "thinking": "I look.", "signature": "s"}, {"type": "text", "text": "I read it."},
				{"type": "tool_use", "id": "1", "name": "read", "input": json.RawMessage(`{"a": 1.0, "b": 1e5, "c": "é\u2028<\u0007", "d": -0}`)},
			}},
			rig.Object{"role": "user", "content": []rig.Object{{"type": "tool_result", "tool_use_id": "1", "content": []rig.Object{{"type": "text", "text": "Once"}}}, {"type": "text", "text": "And then?"}}},
		)}, "kept"},
		{"`messages` with blocks of other types: `document`, `server_tool_use`, `web_search_tool_result`, …", "", rig.Object{"messages": and(
			rig.Object{"role": "assistant", "content": []rig.Object{{"type": "server_tool_use", "id": "1", "name": "web_search", "input": rig.Object{}}, {"type": "text", "text": "I read it."}}},
			rig.Object{"role": "user", "content": []rig.Object{{"type": "document", "source": rig.Object{}}, {"type": "text", "text": "And then?"}}},
		)}, "kept"},
		{"`messages` with images", "", rig.Object{"messages": and(rig.Object{"role": "user", "content": []rig.Object{{"type": "image", "source": rig.Object{"type": "base64", "data": "AAAA"}}}})}, "pass; reason=media"},
		{"`tools`, also those of the provider (`web_search_20250305`, `bash_20250124`, …), `tool_choice`", "", rig.Object{
			"tools": []rig.Object{{"name": "read", "description": "reads", "input_schema": schema}}, "tool_choice": rig.Object{"type": "any"},
		}, "kept"},
		{"`tools`, also those of the provider (`web_search_20250305`, `bash_20250124`, …), `tool_choice`", "", rig.Object{
			"tools": []rig.Object{{"name": "read", "input_schema": schema}, {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}}, "tool_choice": rig.Object{"type": "none"},
		}, "kept"},
		{"`thinking`, `output_config`, `chat_template_kwargs`", "", rig.Object{"thinking": rig.Object{"type": "enabled", "budget_tokens": 8}, "output_config": rig.Object{"effort": "low"}}, "kept"},
		{"`thinking`, `output_config`, `chat_template_kwargs`", "", rig.Object{"thinking": rig.Object{"type": "adaptive"}, "chat_template_kwargs": rig.Object{"reasoning_effort": "low"}}, "kept"},
		{"`id_slot`, `cache_prompt`, `n`, `n_cache_reuse`", "", rig.Object{"id_slot": 1, "cache_prompt": false, "n": 2, "n_cache_reuse": 8}, "kept"},
		{"`stream`, `metadata`, `stop_sequences`, `context_management`, …", "", rig.Object{"stream": true, "metadata": rig.Object{"user_id": "u"}, "stop_sequences": []string{"x"}, "context_management": rig.Object{}}, "kept"},
	},
}

// basis is what every request to a path has.
func basis(path string) rig.Object {
	b := rig.Object{"max_tokens": 4, "temperature": 0, "cache_prompt": true}
	switch {
	case strings.HasSuffix(path, "messages"), strings.HasSuffix(path, "chat/completions"):
		b["messages"] = []rig.Object{user}
	case strings.HasSuffix(path, "/responses"):
		b["input"] = rig.Longer
		b["max_output_tokens"] = 4
	case strings.HasSuffix(path, "/completion"), strings.HasSuffix(path, "/completions"):
		b["prompt"] = rig.Longer
		b["n_predict"] = 4
	default:
		return rig.Object{}
	}
	return b
}

// Every endpoint of the server, and each field that shapes a prompt, is kept or passes as the tables in docs/llama-server.md say. What is kept has as
// many tokens for the front as for the server, and is there the second time.
func TestEveryEndpointAndField(t *testing.T) {
	template, err := filepath.Abs(rig.Testdata("tools.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{"DORMOUSE_LLAMA_SERVER", "DORMOUSE_LLAMA_SERVER_OTHER"} {
		t.Run(server, func(t *testing.T) {
			rig.UseServer(t, server)
			r := rig.Start(t, llamaserver.Options{}, "-c", "4096", "-np", "1", "--jinja", "--chat-template-file", template)
			for _, e := range endpoints {
				example(t, r, e)
			}
			for path, list := range shapes {
				for _, e := range list {
					e.path = path
					example(t, r, e)
				}
			}
			r.Saved() // with each save the tokens in the slot are compared
			if log := r.Log.String(); strings.Contains(log, "other tokens") {
				t.Errorf("prompts were rendered otherwise:\n%s", log)
			}
		})
	}
}

// example sends a request, twice if it is kept.
func example(t *testing.T, r *rig.Rig, e exampleOf) {
	t.Helper()
	body := e.body
	if more, ok := e.body.(rig.Object); ok {
		all := basis(e.path)
		maps.Copy(all, more)
		body = all
	}
	asked := func() (rig.Reply, int) {
		before := r.Requests()
		got := rig.Ask(t, t.Context(), r.URL, e.path, body)
		if e.want == "" {
			return got, 0
		}
		r.Eventually(func() bool { return r.Requests() > before || strings.HasPrefix(got.Header, "pass") })
		return got, r.Front.Figures().Recent[0].Asked
	}
	got, _ := asked()
	if e.want != "kept" {
		if got.Header != e.want {
			t.Errorf("%s %s %v: %d %q, expected %q\n%s", e.path, e.of, e.body, got.Status, got.Header, e.want, got.Body)
		}
		return
	}
	first := got.Header
	got, tokens := asked()
	for range 3 { // by its measurements the front may compute what it has found; then the slot has it
		if strings.HasPrefix(got.Header, "miss; reason="+figures.TooSlow) {
			got, tokens = asked()
		}
	}
	if kept := strings.HasPrefix(got.Header, "slot; ") || strings.HasPrefix(got.Header, "hit; "); got.Status != 200 || !kept || got.A.Cached+got.A.Prompt != tokens || got.A.Cached < tokens-1 {
		t.Errorf("%s %s %v: %d, first %q, then %q: the server has %d tokens and %d of them cached, the front %d\n%s",
			e.path, e.of, e.body, got.Status, first, got.Header, got.A.Cached+got.A.Prompt, got.A.Cached, tokens, got.Body[:min(len(got.Body), 300)])
	}
}

// The tables in docs/llama-server.md have a row for each of these examples, which says what is so, and no others.
func TestDocsNameEveryEndpointAndField(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(rig.Root, "docs", "llama-server.md"))
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
