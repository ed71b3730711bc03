//go:build (linux && !android) || (darwin && !ios)

package llama

import (
	"errors"
	"slices"
	"testing"
)

// An embedding is of the text alone: the same one whatever was embedded before it. What would end the process is refused.
func TestEmbed(t *testing.T) {
	lib := load(t)
	m := loadModel(t, lib, "../testdata/stories260K-f32.gguf")
	c, err := m.NewContext(ContextOptions{Tokens: 64, Batch: 32, MicroBatch: 32, Embeddings: true, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	embed := func(text string) []float32 {
		t.Helper()
		tokens, err := m.Tokenize(text, true)
		if err != nil {
			t.Fatal(err)
		}
		v, err := c.Embed(tokens)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	first := embed("Once upon a time")
	other := embed("The dog was happy")
	if again := embed("Once upon a time"); !slices.Equal(first, again) || slices.Equal(first, other) || len(first) != 64 {
		t.Errorf("embeddings of %d numbers: %v, again %v, of another text %v", len(first), first[:4], again[:4], other[:4])
	}
	for name, tokens := range map[string][]int32{"nothing": nil, "more than a micro batch": make([]int32, 33)} {
		if _, err := c.Embed(tokens); !errors.Is(err, ErrDecode) {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain, err := m.NewContext(ContextOptions{Tokens: 64, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if v, err := plain.Embed([]int32{1, 2}); !errors.Is(err, ErrDecode) {
		t.Errorf("a context that makes none: %v, %v", v, err)
	}
	plain.Close()
	if _, err := plain.Embed([]int32{1}); err == nil {
		t.Error("a closed context embeds")
	}
}
