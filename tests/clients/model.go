//go:build unix

package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
)

// The shape of the model: few rows to keep, and enough to compute that a prompt of 20,000 tokens takes seconds.
const (
	layers    = 2
	embedding = 128
	heads     = 4
	kvHeads   = 1
	feed      = 4096
	window    = 1 << 16
)

// writeModel writes a model with the tokenizer and the chat template of the model at from, and few random layers.
//
// Agents must get an answer that ends, whatever was asked. So the matrix that chooses the next token leads from the line break at the end of a
// prompt to "Done", from there to a full stop, and then to the end of the turn. The layers change what they are given by a twentieth:
// the rows that are kept hang on every earlier token, and the answer hardly does.
func writeModel(path, from string) error {
	f, err := gguf.Open(from)
	if err != nil {
		return err
	}
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	const arch = "qwen2"
	if a, err := f.Architecture(); err != nil || a != arch {
		return fmt.Errorf("%s: its architecture is %q, expected %s: %w", from, a, arch, err)
	}
	w := ggufgen.NewWriter(arch, 37)
	w.String("general.name", "random layers, tokenizer of Qwen2.5-Coder")
	for _, key := range f.Keys {
		if !strings.HasPrefix(key, "tokenizer.") {
			continue
		}
		v := f.Meta[key]
		value := make([]byte, v.Size)
		if _, err := file.ReadAt(value, v.Offset); err != nil {
			return fmt.Errorf("%s: %s: %w", from, key, err)
		}
		w.Raw(key, uint32(v.Type), value)
	}
	tokens, err := texts(file, f.Meta["tokenizer.ggml.tokens"])
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	end, err := f.Int("tokenizer.ggml.eos_token_id")
	if err != nil {
		return err
	}
	leads := map[int]int{} // the token after a token
	at := int(end)
	for _, text := range []string{".", "Done", "\u010a"} { // from the last to the first; the last one is how this vocabulary writes a line break
		before, ok := tokens[text]
		if !ok {
			return fmt.Errorf("%s: its vocabulary has no token %q", from, text)
		}
		leads[at] = before
		at = before
	}

	w.Uint(arch+".context_length", window)
	w.Uint(arch+".embedding_length", embedding)
	w.Uint(arch+".block_count", layers)
	w.Uint(arch+".feed_forward_length", feed)
	w.Uint(arch+".attention.head_count", heads)
	w.Uint(arch+".attention.head_count_kv", kvHeads)
	w.Float(arch+".attention.layer_norm_rms_epsilon", 1e-6)
	w.Float(arch+".rope.freq_base", 1e6)

	rng := rand.New(rand.NewPCG(37, 1))
	normal := func(n int, scale float64) []float32 {
		m := make([]float32, n)
		for i := range m {
			m[i] = float32(rng.NormFloat64() * scale)
		}
		return m
	}
	matrix := func(name string, scale float64, dims ...int) {
		m := normal(dims[0]*dims[1], scale/math.Sqrt(float64(dims[0])))
		w.Tensor(name, func(i int) float32 { return m[i] }, dims...)
	}
	ones := func(name string) { w.Tensor(name, func(int) float32 { return 1 }, embedding) }

	meaning := normal(len(tokens)*embedding, 1/math.Sqrt(embedding))
	next := normal(len(tokens)*embedding, 1/math.Sqrt(embedding))
	for token, before := range leads {
		for i := range embedding {
			next[token*embedding+i] = 3 * meaning[before*embedding+i]
		}
	}
	w.Tensor("token_embd.weight", func(i int) float32 { return meaning[i] }, embedding, len(tokens))
	w.Tensor("output.weight", func(i int) float32 { return next[i] }, embedding, len(tokens))
	ones("output_norm.weight")
	const head = embedding / heads
	for l := range layers {
		name := func(s string) string { return fmt.Sprintf("blk.%d.%s", l, s) }
		ones(name("attn_norm.weight"))
		for _, part := range []string{"attn_q", "attn_k", "attn_v"} {
			n := kvHeads
			if part == "attn_q" {
				n = heads
			}
			w.Tensor(name(part+".bias"), func(int) float32 { return 0 }, n*head)
		}
		matrix(name("attn_q.weight"), 1, embedding, heads*head)
		matrix(name("attn_k.weight"), 1, embedding, kvHeads*head)
		matrix(name("attn_v.weight"), 1, embedding, kvHeads*head)
		matrix(name("attn_output.weight"), 0.05, heads*head, embedding)
		ones(name("ffn_norm.weight"))
		matrix(name("ffn_gate.weight"), 1, embedding, feed)
		matrix(name("ffn_up.weight"), 1, embedding, feed)
		matrix(name("ffn_down.weight"), 0.05, feed, embedding)
	}

	tmp, err := os.CreateTemp(filepath.Dir(path), "model-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if _, err := tmp.Write(w.Bytes()); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// texts reads the tokens of a vocabulary, by their text.
func texts(file *os.File, v gguf.Value) (map[string]int, error) {
	b := make([]byte, v.Size)
	if _, err := file.ReadAt(b, v.Offset); err != nil {
		return nil, err
	}
	if v.Type != gguf.Array || v.Elem != gguf.String || len(b) < 12 {
		return nil, fmt.Errorf("the vocabulary is no array of strings")
	}
	b = b[12:] // type and number of the elements
	tokens := make(map[string]int, v.Count)
	for i := range int(v.Count) {
		if len(b) < 8 || uint64(len(b)-8) < binary.LittleEndian.Uint64(b) {
			return nil, fmt.Errorf("the vocabulary ends in token %d of %d", i, v.Count)
		}
		n := 8 + binary.LittleEndian.Uint64(b)
		tokens[string(b[8:n])] = i
		b = b[n:]
	}
	if int64(len(tokens)) != v.Count {
		return nil, fmt.Errorf("the vocabulary has %d texts for %d tokens", len(tokens), v.Count)
	}
	return tokens, nil
}
