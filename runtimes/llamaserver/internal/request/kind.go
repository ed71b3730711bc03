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
	if with == nil {
		return r.Endpoint.String()
	}
	return r.Endpoint.String() + " with " + strings.Join(with, ", ")
}
