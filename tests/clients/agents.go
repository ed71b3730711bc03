//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// client is a program that people put before a llama-server.
type client struct {
	name    string
	from    string // the folder of lock/ that has it; empty: name
	program string // in .cache/clients/bin
	version []string

	// env and file tell it where the server is; file is written below its home.
	env  func(url string) []string
	file func(url string) (path, text string)

	// first and next are what it is called with, to begin a conversation in a folder, and to go on with the last one there.
	first, next func(text string) []string

	advice advice
}

// advice is what people are told to set, so that a new conversation in another folder begins as an older one did.
type advice struct {
	env   []string
	args  []string // before all others but the name of a subcommand
	front []string // flags of dormouse serve
}

// modelName is what clients call the model. A server with one model does not look at it.
const modelName = "qwen"

// clients are all that have been tried here, agents first. Each switch that ends updates, telemetry or downloads is the client's own, and documented.
var clients = []client{
	{
		name: "claude-code", program: "claude", version: []string{"--version"},
		env: func(url string) []string {
			return []string{"ANTHROPIC_BASE_URL=" + url, "ANTHROPIC_AUTH_TOKEN=none",
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1", "DISABLE_AUTOUPDATER=1"}
		},
		first:  func(text string) []string { return []string{"-p", text} },
		next:   func(text string) []string { return []string{"-p", "--continue", text} },
		advice: advice{front: []string{"--normalize", "claude-code"}},
	},
	{
		name: "codex", program: "codex", version: []string{"--version"},
		file: func(url string) (string, string) {
			return ".codex/config.toml", fmt.Sprintf(`model = %q
model_provider = "local"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.local]
name = "local"
base_url = "%s/v1"
wire_api = "responses"
`, modelName, url)
		},
		first: func(text string) []string { return []string{"exec", "--skip-git-repo-check", text} },
		next: func(text string) []string {
			return []string{"exec", "--skip-git-repo-check", "resume", "--last", text}
		},
	},
	{
		name: "opencode", program: "opencode", version: []string{"--version"},
		env: func(string) []string {
			return []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1"}
		},
		file: func(url string) (string, string) {
			return ".config/opencode/opencode.json", fmt.Sprintf(`{"autoupdate": false, "share": "disabled", "model": "local/%[2]s", "small_model": "local/%[2]s", "provider": {"local": {
  "npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "%[1]s/v1", "apiKey": "none"},
  "models": {"%[2]s": {"name": "%[2]s", "limit": {"context": 65536, "output": 4096}}}}}}`, url, modelName)
		},
		first:  func(text string) []string { return []string{"run", text} },
		next:   func(text string) []string { return []string{"run", "--continue", text} },
		advice: advice{front: []string{"--normalize", "opencode"}},
	},
	{
		name: "qwen-code", program: "qwen", version: []string{"--version"},
		env: func(url string) []string {
			return []string{"OPENAI_BASE_URL=" + url + "/v1", "OPENAI_API_KEY=none", "OPENAI_MODEL=" + modelName}
		},
		file: func(string) (string, string) {
			return ".qwen/settings.json", `{"security": {"auth": {"selectedType": "openai"}}, "telemetry": {"enabled": false}, "privacy": {"usageStatisticsEnabled": false}, "general": {"disableAutoUpdate": true, "disableUpdateNag": true}}`
		},
		first:  func(text string) []string { return []string{"-p", text} },
		next:   func(text string) []string { return []string{"--continue", "-p", text} },
		advice: advice{front: []string{"--normalize", "qwen-code"}},
	},
	{
		name: "pi", program: "pi", version: []string{"--version"},
		env: func(string) []string { return []string{"PI_OFFLINE=1", "PI_TELEMETRY=0"} },
		file: func(url string) (string, string) {
			return ".pi/agent/models.json", fmt.Sprintf(`{"providers": {"local": {"baseUrl": "%[1]s/v1", "api": "openai-completions", "apiKey": "none",
  "models": [{"id": "%[2]s", "name": "%[2]s", "contextWindow": 65536, "maxTokens": 4096}]}}}`, url, modelName)
		},
		first: func(text string) []string { return []string{"--provider", "local", "--model", modelName, "-p", text} },
		next: func(text string) []string {
			return []string{"--provider", "local", "--model", modelName, "--continue", "-p", text}
		},
		advice: advice{front: []string{"--normalize", "pi"}},
	},
	{
		name: "aider", program: "aider", version: []string{"--version"},
		env: func(url string) []string { return []string{"OPENAI_API_BASE=" + url + "/v1", "OPENAI_API_KEY=none"} },
		first: func(text string) []string {
			return append(aiderFlags(), "--message", text)
		},
		next: func(text string) []string {
			return append(aiderFlags(), "--restore-chat-history", "--message", text)
		},
	},
	python("openai"), python("anthropic"), python("langchain"), python("litellm"),
	{
		name: "llm", from: "packages", program: "llm", version: []string{"--version"},
		file: func(url string) (string, string) {
			return ".config/io.datasette.llm/extra-openai-models.yaml", fmt.Sprintf("- model_id: %s\n  model_name: %s\n  api_base: %s/v1\n  api_key_name: none\n", modelName, modelName, url)
		},
		env: func(string) []string { return []string{"OPENAI_API_KEY=none"} },
		first: func(text string) []string {
			return []string{"-m", modelName, "--key", "none", "-s", systemPrompt, text}
		},
		next: func(text string) []string { return []string{"-c", "-m", modelName, "--key", "none", text} },
	},
}

func aiderFlags() []string {
	return []string{"--model", "openai/" + modelName, "--no-check-update", "--no-show-release-notes", "--no-show-model-warnings", "--analytics-disable", "--yes-always", "--no-pretty", "--no-gitignore"}
}

// unavailable are clients that fetch.sh does not fetch anywhere, and why.
var unavailable = map[string]string{
	"open-webui": "its wheel needs some 260 packages, PyTorch with CUDA libraries among them: several GB",
}

// systemPrompt is longer than what is not worth finding.
const systemPrompt = "You are a careful assistant for people who write programs. Answer briefly, in plain words, and say so where you are not sure. " +
	"Name files by their path. Never invent a function: look it up first. Show commands on a line of their own, so that they can be copied."

// python is a package, called by packages.py with twenty tools. The conversation is a file in the folder, as a program of somebody's would have it.
func python(name string) client {
	script, _ := filepath.Abs("tests/clients/packages.py")
	return client{
		name: name, from: "packages", program: "packages-python", version: []string{script, name, "version"},
		env:   func(url string) []string { return []string{"SERVER=" + url} },
		first: func(text string) []string { return []string{script, name, "first", text} },
		next:  func(text string) []string { return []string{script, name, "next", text} },
	}
}

func (c client) lock() string {
	if c.from != "" {
		return c.from
	}
	return c.name
}

// settle writes the configuration of a client below its home.
func (c client) settle(home, url string) error {
	if c.file == nil {
		return nil
	}
	path, text := c.file(url)
	path = filepath.Join(home, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// environ is all that a client sees of the environment: a home of its own, and proxies that lead nowhere for whatever is not this machine.
func (c client) environ(home, url string, advised bool) []string {
	const nowhere = "http://127.0.0.1:9"
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "TERM=dumb", "NO_COLOR=1", "HOME=" + home, "TMPDIR=" + filepath.Join(home, "tmp"),
		"HTTP_PROXY=" + nowhere, "HTTPS_PROXY=" + nowhere, "http_proxy=" + nowhere, "https_proxy=" + nowhere, "NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost"}
	if c.env != nil {
		env = append(env, c.env(url)...)
	}
	if advised {
		env = append(env, c.advice.env...)
	}
	return env
}

// line is what a client is called with.
func (c client) line(args []string, advised bool) []string {
	if advised {
		args = slices.Concat(c.advice.args, args)
	}
	return args
}

// advised reports whether there is anything to set.
func (c client) advised() bool {
	return len(c.advice.env)+len(c.advice.args)+len(c.advice.front) > 0
}
