package causes

import (
	"net/http"
	"testing"
)

func TestClientsAreKnownByTheirHeaders(t *testing.T) {
	for _, c := range []struct{ header, value, want string }{
		// As these programs sent them.
		{"User-Agent", "claude-cli/2.1.197 (external, sdk-cli)", ClaudeCode},
		{"User-Agent", "codex_exec/0.171.0 (Debian 12.0.0; x86_64) xterm (codex_exec; 0.171.0)", Codex},
		{"Originator", "codex_exec", Codex},
		{"User-Agent", "opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3.14", OpenCode},
		{"User-Agent", "QwenCode/0.15.10 (linux; x64)", QwenCode},
		{"User-Agent", "OpenAI/Python 3.57.0", OpenAIPython},
		{"User-Agent", "AsyncOpenAI/Python 3.57.0", OpenAIPython},
		{"User-Agent", "Anthropic/Python 2.14.0", AnthropicPython},
		{"User-Agent", "AsyncAnthropic/Python 2.14.0", AnthropicPython},
		{"User-Agent", "langchain-anthropic/1.7.10", LangChain},
		{"User-Agent", "OpenAI/JS 6.26.0", OpenAINode},
		// As they are documented.
		{"X-Title", "Aider", Aider},
		{"X-OpenWebUI-User-Id", "1", OpenWebUI},
		{"User-Agent", "curl/8.5.0", Curl},
		{"User-Agent", "Mozilla/5.0", ""},
		{"Accept", "*/*", ""},
	} {
		h := http.Header{}
		h.Set(c.header, c.value)
		if got := Client(h); got != c.want {
			t.Errorf("%s: %s is of %q, expected %q", c.header, c.value, got, c.want)
		}
	}
}

// pi and aider send what their libraries send; their prompts say who they are.
func TestProgramsAreKnownByTheirPrompts(t *testing.T) {
	for _, c := range []struct{ client, body, want string }{
		{OpenAINode, `{"model":"local","messages":[{"role":"system","content":"You are an expert coding assistant operating inside pi, a coding agent harness. You help"}]}`, Pi},
		{OpenAIPython, `{"messages": [{"role": "system", "content": "Act as an expert software developer.\nYou MUST use this *file listing* format:\n"}]}`, Aider},
		{OpenAIPython, `{"messages": [{"role": "system", "content": "Act as an expert software developer."}]}`, OpenAIPython},
		{OpenCode, `{"messages": [{"role": "user", "content": "Is it operating inside pi, a coding agent harness?"}]}`, OpenCode},
		{"", "", ""},
	} {
		if got := Program(c.client, []byte(c.body)); got != c.want {
			t.Errorf("%q %s: %q, expected %q", c.client, c.body, got, c.want)
		}
	}
}
