package request

import "strings"

// Endpoint is a kind of request that computes a prompt.
type Endpoint int

const (
	None           Endpoint = iota
	Completion              // /completion, /completions: a prompt
	TextCompletion          // /v1/completions: a prompt
	Chat                    // /v1/chat/completions: messages
	Responses               // /v1/responses: input
	Messages                // /v1/messages: the system prompt apart
	Infill                  // /infill: what is before and after
)

func (e Endpoint) String() string {
	return [...]string{"other", "completion", "completions", "chat", "responses", "messages", "infill"}[e]
}

// EndpointOf says what a path means, under the server's prefix.
func EndpointOf(path, prefix string) Endpoint {
	rest, ok := strings.CutPrefix(path, prefix)
	if !ok {
		return None
	}
	switch rest {
	case "/completion", "/completions":
		return Completion
	case "/v1/completions":
		return TextCompletion
	case "/chat/completions", "/v1/chat/completions", "/api/chat":
		return Chat
	case "/responses", "/v1/responses":
		return Responses
	case "/v1/messages":
		return Messages
	case "/infill":
		return Infill
	}
	return None
}

// Pins reports whether the server takes id_slot from such a request.
func (e Endpoint) Pins() bool { return e != Messages }
