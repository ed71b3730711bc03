package request

import "strings"

// shaping are the fields that bear on what the server makes of a prompt, or on the rows that it computes for it.
var shaping = []string{
	"lora", "tools", "tool_choice", "response_format", "json_schema", "grammar", "text", "instructions", "system", "thinking", "reasoning", "reasoning_effort",
	"reasoning_format", "chat_template_kwargs", "chat_template", "add_generation_prompt", "continue_final_message", "parallel_tool_calls", "functions",
}

// Kind says in words what kind of request it is: the endpoint, and which of the fields that shape a prompt say something. What goes wrong with
// one kind says nothing of the others.
func (r *Request) Kind() string {
	var with []string
	for _, key := range shaping {
		if !empty(r.Fields[key]) {
			with = append(with, key)
		}
	}
	if t := r.Unsure(); len(t) > 0 {
		with = append(with, "type "+t.String())
	}
	if with == nil {
		return r.Endpoint.String()
	}
	return r.Endpoint.String() + " with " + strings.Join(with, ", ")
}

// MostTokens is how many tokens an answer may have, if the request says so. Of several bounds the largest counts: which one the server takes depends
// on the release.
func (r *Request) MostTokens() (most int, bounded bool) {
	for _, key := range []string{"n_predict", "max_tokens", "max_completion_tokens", "max_output_tokens"} {
		if !r.Has(key) {
			continue
		}
		n, ok := r.whole(key)
		if !ok || n < 0 {
			return 0, false
		}
		most, bounded = max(most, n), true
	}
	return most, bounded
}
