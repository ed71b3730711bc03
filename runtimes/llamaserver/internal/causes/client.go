package causes

import (
	"bytes"
	"net/http"
	"strings"
)

// Clients that have a name of their own. A program that no one here knows is "".
const (
	ClaudeCode      = "claude-code"
	Codex           = "codex"
	OpenCode        = "opencode"
	QwenCode        = "qwen-code"
	Pi              = "pi"
	Aider           = "aider"
	OpenWebUI       = "open-webui"
	LLM             = "llm"
	LiteLLM         = "litellm"
	LangChain       = "langchain"
	OpenAIPython    = "openai-python"
	OpenAINode      = "openai-node"
	AnthropicPython = "anthropic-python"
	AnthropicNode   = "anthropic-node"
	Curl            = "curl"
)

// agents are known by how their User-Agent begins, in lower case. The first that fits counts: libraries come last, since programs use them.
var agents = []struct{ begins, client string }{
	{"claude-cli/", ClaudeCode},
	{"claude-code/", ClaudeCode},
	{"codex_", Codex},
	{"codex-", Codex},
	{"codex/", Codex},
	{"opencode/", OpenCode},
	{"qwencode/", QwenCode},
	{"qwen-code/", QwenCode},
	{"pi/", Pi},
	{"pi-coding-agent/", Pi},
	{"aider/", Aider},
	{"open-webui/", OpenWebUI},
	{"open webui/", OpenWebUI},
	{"litellm/", LiteLLM},
	{"langchain", LangChain},
	{"asyncopenai/python", OpenAIPython},
	{"openai/python", OpenAIPython},
	{"openai/js", OpenAINode},
	{"asyncanthropic/python", AnthropicPython},
	{"anthropic/python", AnthropicPython},
	{"anthropic/js", AnthropicNode},
	{"curl/", Curl},
}

// titles are what programs that use a library as it is call themselves in X-Title, in lower case.
var titles = map[string]string{"aider": Aider, "open webui": OpenWebUI, "opencode": OpenCode, "qwen code": QwenCode}

// Client names the program that sent a request by its headers, or is "" for one that is not known.
func Client(h http.Header) string {
	if strings.HasPrefix(strings.ToLower(h.Get("Originator")), "codex") {
		return Codex
	}
	for name := range h {
		if strings.HasPrefix(name, "X-Openwebui-") {
			return OpenWebUI
		}
	}
	if c := titles[strings.ToLower(h.Get("X-Title"))]; c != "" {
		return c
	}
	agent := strings.ToLower(h.Get("User-Agent"))
	for _, a := range agents {
		if strings.HasPrefix(agent, a.begins) {
			return a.client
		}
	}
	return ""
}

// programs are known by what their system prompts say: their headers are those of a library.
var programs = []struct{ library, says, client string }{
	{OpenAINode, "operating inside pi, a coding agent harness", Pi},
	{OpenAIPython, "You MUST use this *file listing* format", Aider},
	{OpenAIPython, "All changes to files must use this *SEARCH/REPLACE block* format", Aider},
	{OpenAIPython, "I switched to a new code base. Please don't consider the above files", Aider},
	{AnthropicPython, "All changes to files must use this *SEARCH/REPLACE block* format", Aider},
}

// beginning is how much of a request is looked at, in bytes.
const beginning = 16 << 10

// Program names the program that sent a request, where its headers name a library alone: some are known by how their system prompts begin.
func Program(client string, body []byte) string {
	for _, p := range programs {
		if client == p.library && bytes.Contains(body[:min(len(body), beginning)], []byte(p.says)) {
			return p.client
		}
	}
	return client
}
