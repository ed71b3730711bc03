//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
)

// The figures of each API, as a llama-server gives them, streamed and not.
func TestFigures(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   figures
	}{
		"chat, streamed": {`data: {"choices":[{"delta":{"content":"Done"}}]}

data: {"choices":[],"usage":{"prompt_tokens":30,"prompt_tokens_details":{"cached_tokens":20}},"timings":{"cache_n":20,"prompt_n":10}}

data: [DONE]
`, figures{true, 20, 30}},
		"chat":      {`{"choices":[{"message":{"content":"\"timings\""}}],"usage":{"prompt_tokens":30,"prompt_tokens_details":{"cached_tokens":20}}}`, figures{true, 20, 30}},
		"messages":  {"event: message_start\ndata: {\"message\":{\"usage\":{\"cache_read_input_tokens\":20,\"input_tokens\":10}}}\n\nevent: message_delta\ndata: {\"usage\":{\"output_tokens\":3}}\n", figures{true, 20, 30}},
		"responses": {"data: {\"response\":{\"usage\":{\"input_tokens\":30,\"input_tokens_details\":{\"cached_tokens\":20}}}}\n", figures{true, 20, 30}},
		"an error":  {`{"error":{"message":"no"}}`, figures{}},
		"half":      {`data: {"timings":{"cache_n":2`, figures{}},
	} {
		if got := figuresOf([]byte(c.answer)); got != c.want {
			t.Errorf("%s: %+v, expected %+v", name, got, c.want)
		}
	}
}

// The made model has the tokenizer and the template of the real one, byte for byte, and all that llama.cpp wants of this architecture.
func TestModel(t *testing.T) {
	dir := t.TempDir()
	w := ggufgen.NewWriter("qwen2", 1)
	w.String("general.name", "small")
	w.Strings("tokenizer.ggml.tokens", ".", "\u010a", "Done", "<|im_end|>", "other")
	w.Uint("tokenizer.ggml.eos_token_id", 3)
	w.String("tokenizer.chat_template", "{{ messages }}")
	from, made := filepath.Join(dir, "from.gguf"), filepath.Join(dir, "made.gguf")
	if err := os.WriteFile(from, w.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeModel(made, from); err != nil {
		t.Fatal(err)
	}
	a, err := gguf.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	b, err := gguf.Open(made)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range a.WithPrefix("tokenizer.") {
		if x, y := valueOf(t, a, key), valueOf(t, b, key); a.Meta[key].Type != b.Meta[key].Type || !bytes.Equal(x, y) {
			t.Errorf("%s: %q, expected %q", key, y, x)
		}
	}
	for _, name := range []string{"token_embd.weight", "output.weight", "output_norm.weight", "blk.0.attn_q.bias", "blk.1.ffn_down.weight"} {
		if _, ok := b.Tensor(name); !ok {
			t.Errorf("it has no %s", name)
		}
	}
	if err := writeModel(made, made+"-not-there"); err == nil {
		t.Error("a model that is not there is taken")
	}
}

func valueOf(t *testing.T, f *gguf.File, key string) []byte {
	t.Helper()
	v, ok := f.Meta[key]
	if !ok {
		t.Fatalf("%s: no %s", f.Path, key)
	}
	file, err := os.ReadFile(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	return file[v.Offset : v.Offset+v.Size]
}

// Each client can be fetched, each archive has a hash, and no registry is named.
func TestLocks(t *testing.T) {
	fetch, err := os.ReadFile("fetch.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range clients {
		if !strings.Contains(string(fetch), "command_of "+c.program+" ") {
			t.Errorf("%s: fetch.sh makes no command %s", c.name, c.program)
		}
		if _, err := os.Stat(filepath.Join("lock", c.lock())); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	npm, err := filepath.Glob("lock/*/package-lock.json")
	if err != nil || len(npm) == 0 {
		t.Fatal(npm, err)
	}
	for _, name := range npm {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if versions, hashes := strings.Count(string(text), `"version": `), strings.Count(string(text), `"integrity": "sha512-`); versions != hashes || hashes == 0 {
			t.Errorf("%s: %d versions, %d hashes", name, versions, hashes)
		}
		if bytes.Contains(text, []byte(`"resolved"`)) {
			t.Errorf("%s names a registry", name)
		}
	}
	pip, err := filepath.Glob("lock/*/requirements.txt")
	if err != nil || len(pip) == 0 {
		t.Fatal(pip, err)
	}
	pinned := regexp.MustCompile(`^[a-z0-9._-]+==[^ ]+ --hash=sha256:[0-9a-f]{64}$`)
	for _, name := range pip {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !pinned.MatchString(strings.TrimSpace(line)) {
				t.Errorf("%s: %q is not pinned", name, line)
			}
		}
	}
}
