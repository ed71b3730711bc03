package causes

import (
	"net/http"
	"testing"
)

func TestClientsAreKnownByTheirHeaders(t *testing.T) {
	for _, c := range []struct{ header, value, want string }{
		{"User-Agent", "claude-cli/2.1.0 (external, sdk-cli)", ClaudeCode},
		{"User-Agent", "codex_exec/0.171.0 (Debian 12.0.0; x86_64)", Codex},
		{"Originator", "codex_cli_rs", Codex},
		{"User-Agent", "opencode/1.18.0 ai-sdk/provider-utils/3.0.20 runtime/bun/1.3.5", OpenCode},
		{"User-Agent", "QwenCode/0.6.0 (linux; x64)", QwenCode},
		{"X-Title", "Aider", Aider},
		{"X-OpenWebUI-User-Id", "1", OpenWebUI},
		{"User-Agent", "OpenAI/Python 2.9.0", OpenAIPython},
		{"User-Agent", "AsyncOpenAI/Python 2.9.0", OpenAIPython},
		{"User-Agent", "Anthropic/Python 0.75.0", AnthropicPython},
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
