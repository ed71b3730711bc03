//go:build (linux && !android) || (darwin && !ios)

package tokenizer_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/internal/gguf/tokenizer"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

const stories = "../../../runtimes/llamacpp/testdata/stories260K-f32.gguf"

func openTokenizer(t *testing.T, path string) *tokenizer.Tokenizer {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// texts are hand-picked, the files of this repository, pieces of them, and random ones.
func texts(t *testing.T) []string {
	out := []string{
		"", " ", "  ", "\n", "\n\n\n", " \n \n", "\t\tx", "a", " a", "a ", "a  b", "Once upon a time", "I'm, you're; they'll'd 'S 's'",
		"1234567 12 3.14 ½ Ⅷ x² 10²", "don't 'tis ''' 'x", "naïve café", "日本語のテキスト", "한국어", "emoji 👩‍👩‍👧 🏳️‍🌈 end", "עברית and العربية",
		"<bos>", "<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", "a<bos> b <eos>c",
		"<unk>", "[multimodal]", "<unused3>x", "\u2581x \u2581\u2581", "a\u00a0b\u2003c\u3000d", "\u0085x", "é\u0301", "x\x00y", "\ufffd", "\U000e0001\U0010fffd",
		strings.Repeat("a", 3000), strings.Repeat(" ", 300) + "x", strings.Repeat("ab ", 500), "\r\n\r\n x\r", "func main() {\n\tfmt.Println(\"x\")\n}\n", "<h1>Title</h1><br>",
	}
	for _, pattern := range []string{"../../../*.md", "../../../docs/*.md", "../*.go", "../../../examples/warmstart/*.txt"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if len(b) > 16<<10 {
				b = b[:16<<10]
			}
			out = append(out, strings.ToValidUTF8(string(b), ""))
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	whole := out[len(out)-1] + strings.Join(out[:40], "")
	for range 300 {
		a := rng.IntN(len(whole))
		out = append(out, strings.ToValidUTF8(whole[a:min(len(whole), a+rng.IntN(80))], ""))
	}
	alphabet := []rune(" \n\t'aeistdrvlmAZé1½²漢🙂\u0301\u00a0.,-_/<>|\u2581")
	for range 1500 {
		var b strings.Builder
		for range rng.IntN(30) {
			switch rng.IntN(12) {
			case 0:
				if r := rune(rng.IntN(0x20000)); r != 0 && utf8.ValidRune(r) {
					b.WriteRune(r)
				}
			default:
				b.WriteRune(alphabet[rng.IntN(len(alphabet))])
			}
		}
		out = append(out, b.String())
	}
	return out
}

// Every text has the tokens that llama.cpp gives it.
func TestAgainstLlama(t *testing.T) {
	dir := os.Getenv("DORMOUSE_LLAMA_LIB")
	if dir == "" {
		t.Skip("SKIPPED, the tokenizer is not compared: DORMOUSE_LLAMA_LIB is not set; tests/llama/fetch.sh fetches the libraries")
	}
	lib, err := llama.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	models := []string{stories}
	for _, name := range []string{"DORMOUSE_LLAMA_MODEL", "DORMOUSE_LLAMA_SMOL"} {
		if path := os.Getenv(name); path != "" {
			models = append(models, path)
		} else {
			t.Logf("SKIPPED, not compared: %s is not set", name)
		}
	}
	all := texts(t)
	for _, path := range models {
		t.Run(filepath.Base(path), func(t *testing.T) {
			m, err := lib.LoadModel(path, llama.ModelOptions{CPUOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			tok := openTokenizer(t, path)
			tokens, wrong := 0, 0
			for _, text := range all {
				want, err := m.Tokenize(text, true)
				if err != nil {
					t.Fatal(err)
				}
				got, err := tok.Encode(text)
				tokens += len(want)
				if err != nil || !slices.Equal(got, want) {
					if wrong++; wrong < 10 {
						t.Errorf("%.120q: %v, %v, llama.cpp says %v", text, got[:min(40, len(got))], err, want[:min(40, len(want))])
					}
				}
			}
			t.Logf("%d texts, %d tokens, %d texts differ", len(all), tokens, wrong)
		})
	}
}

// Without llama.cpp: what it said of a model that is here.
func TestStories(t *testing.T) {
	got, err := openTokenizer(t, stories).Encode("Once upon a time, there was a cat.")
	if want := []int32{1, 403, 407, 261, 378, 432, 383, 286, 261, 280, 294, 426}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, expected %v", got, err, want)
	}
}

// A kind that is not known is refused by its name, and a file without a tokenizer too.
func TestRefused(t *testing.T) {
	f, err := gguf.Open(stories)
	if err != nil {
		t.Fatal(err)
	}
	kind := f.Meta["tokenizer.ggml.model"]
	for _, name := range []string{"bert", "t5", "rwkv", "gpt2"} {
		kind.Scalar = name
		f.Meta["tokenizer.ggml.model"] = kind
		if _, err := tokenizer.Open(f); !errors.Is(err, tokenizer.ErrKind) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	delete(f.Meta, "tokenizer.ggml.model")
	if _, err := tokenizer.Open(f); !errors.Is(err, gguf.ErrMissing) {
		t.Errorf("no tokenizer: %v", err)
	}
}
