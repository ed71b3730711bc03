//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo))

package main

import (
	"context"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/internal/logits"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

const (
	batch   = 64
	prompts = 576 // tokens: more than the window of Gemma 3
	follows = 32  // tokens whose predictions are compared
)

// example is a model with a kind of cache.
type example struct {
	name  string
	path  string
	cache *llama.CacheType
	size  int // tokens of the prompt
}

// examples are written to dir.
func examples(dir string, models []string) (all []example, err error) {
	q8 := llama.Q8_0
	for _, x := range []struct {
		name string
		gguf []byte
		q8   bool
	}{
		{"llama", ggufgen.LLaMA(1, 3, 64), true},
		{"gemma3", ggufgen.Gemma3(2, 7, 64, 40), true},
		{"deepseek2", ggufgen.DeepSeek2(3, 3), false},
		{"jamba", ggufgen.Jamba(5, 4), false},
	} {
		path := filepath.Join(dir, x.name+".gguf")
		if err := os.WriteFile(path, x.gguf, 0o644); err != nil {
			return nil, err
		}
		all = append(all, example{x.name, path, nil, 256})
		if x.q8 {
			all = append(all, example{x.name + " q8_0", path, &q8, 256})
		}
	}
	for _, path := range models {
		name, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".gguf"), ".Q")
		all = append(all, example{name, path, nil, prompts}, example{name + " q8_0", path, &q8, prompts})
	}
	return all, nil
}

// run does a job; what a release cannot do is part of the answer.
func run(j job) (a answer) {
	fail := func(err error) answer { a.Error = err.Error(); return a }
	lib, err := llama.Load(j.Lib)
	if err != nil {
		return fail(err)
	}
	a.Version = lib.Version()
	api, err := llamacpp.Bind(lib.Lookup)
	if err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(j.Dir, 0o755); err != nil {
		return fail(err)
	}
	all, err := examples(j.Dir, j.Models)
	if err != nil {
		return fail(err)
	}
	for _, x := range all {
		r, layout, err := x.run(lib, api, j)
		if err != nil {
			return fail(fmt.Errorf("%s: %w", x.name, err))
		}
		if layout != "" {
			a.Layout = layout
		}
		a.Cases = append(a.Cases, r)
	}
	return a
}

// run evaluates the prompt and saves it, unless another release has, restores it into a new context, and compares what
// follows with what this release found when it was not interrupted. All stores are lossless.
func (x example) run(lib *llama.Lib, api *llamacpp.Library, j job) (r result, layout string, err error) {
	ctx := context.Background()
	m, err := lib.LoadModel(x.path, llama.ModelOptions{CPUOnly: true})
	if err != nil {
		return r, "", err
	}
	defer m.Close()
	tokens, err := x.tokens(m)
	if err != nil {
		return r, "", err
	}
	prompt := kv.Tokens(tokens[:x.size]...)
	from := j.Dir
	if j.Other != "" {
		from = j.Other
	}
	store, err := db.Open(ctx, filepath.Join(from, "store "+x.name), db.Options{Codec: quant.Raw, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return r, "", err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	fa := true
	open := func() (*llama.Context, *llamacpp.Session, error) {
		c, err := m.NewContext(llama.ContextOptions{Tokens: x.size + 2*follows, Batch: batch, MicroBatch: batch, Threads: 1,
			FlashAttention: &fa, CacheK: x.cache, CacheV: x.cache, FullWindow: true})
		if err != nil {
			return nil, nil, err
		}
		s, err := llamacpp.Attach(ctx, store, api, c.Pointer(), llamacpp.Options{Decode: c.Decode, Logger: slog.New(slog.DiscardHandler),
			Identity: llamacpp.Identity{Path: x.path, Memo: filepath.Join(j.Dir, "memo "+x.name)}})
		return c, s, err
	}
	alike := filepath.Join(j.Dir, "logits "+x.name)
	if j.Other == "" {
		if layout, err = x.save(ctx, api, open, tokens, alike); err != nil {
			return r, "", err
		}
	}
	want, err := readLogits(alike)
	if err != nil {
		return r, "", err
	}
	c, s, err := open()
	if err != nil {
		return r, "", err
	}
	defer c.Close()
	r = result{Name: x.name, Mode: s.Mode().String(), Fingerprint: s.Model().Fingerprint().String(), Saved: x.size}
	got, err := s.Restore(ctx, kv.Tokens(tokens...), 0)
	if err != nil {
		return r, "", err
	}
	r.Restored = got.Tokens
	if got.Tokens != x.size {
		return r, layout, nil
	}
	after, err := follow(c, tokens, x.size)
	if err != nil {
		return r, "", err
	}
	r.Like = logits.Compare(want, after)
	if s.Mode() == llamacpp.Rows {
		r.Rows, err = rowsOf(ctx, s.Model(), prompt)
	}
	return r, layout, err
}

// save evaluates the prompt, saves it, and writes the logits of what follows to a file.
func (x example) save(ctx context.Context, api *llamacpp.Library, open func() (*llama.Context, *llamacpp.Session, error), tokens []kv.Token, path string) (layout string, err error) {
	c, s, err := open()
	if err != nil {
		return "", err
	}
	defer c.Close()
	prompt := kv.Tokens(tokens[:x.size]...)
	if err := s.Prefill(ctx, prompt, 0, 0); err != nil {
		return "", err
	}
	if _, err := s.Save(ctx, prompt, 0); err != nil {
		return "", err
	}
	layout = layoutOf(api, c, s)
	after, err := follow(c, tokens, x.size)
	if err != nil {
		return "", err
	}
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	return layout, errors.Join(gob.NewEncoder(f).Encode(after), f.Close())
}

func readLogits(path string) (all [][]float32, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return all, gob.NewDecoder(f).Decode(&all)
}

// tokens are those of the prompt and what follows it: a real text where the model has a vocabulary.
func (x example) tokens(m *llama.Model) ([]kv.Token, error) {
	n := x.size + follows
	if text, err := os.ReadFile("runtimes/llamacpp/testdata/opticks.txt"); err != nil {
		return nil, fmt.Errorf("run this in the repository: %w", err)
	} else if tokens, err := m.Tokenize(string(text), true); err == nil {
		return tokens[:n], nil
	}
	tokens := make([]kv.Token, n)
	seed := uint32(7)
	for i := range tokens {
		seed = seed*1664525 + 1013904223
		tokens[i] = kv.Token(seed>>8) % ggufgen.Vocabulary
	}
	return tokens, nil
}

// follow evaluates what follows the prompt in the text.
func follow(c *llama.Context, tokens []kv.Token, from int) (all [][]float32, err error) {
	if err := c.DecodeAll(tokens[from:], from, 0); err != nil {
		return nil, err
	}
	for i := range tokens[from:] {
		all = append(all, c.Logits(i))
	}
	return all, nil
}

// layoutOf says which of the known layouts a state has.
func layoutOf(api *llamacpp.Library, c *llama.Context, s *llamacpp.Session) string {
	if s.Mode() != llamacpp.Rows {
		return ""
	}
	blob := make([]byte, api.StateSize(c.Pointer(), 0, 0))
	api.StateGet(c.Pointer(), &blob[0], uintptr(len(blob)), 0, 0)
	f, err := state.Learn(blob, len(s.Model().Descriptor().Groups))
	switch {
	case err != nil:
		return err.Error()
	case f.HasRotation:
		return "rotation said"
	}
	return "rotation not said"
}

// rowsOf hashes the rows of a prompt, as a caller gets them.
func rowsOf(ctx context.Context, model *db.Model, prompt kv.Prompt) (string, error) {
	m, err := model.Match(ctx, prompt, db.MatchOptions{})
	if err != nil {
		return "", err
	}
	defer m.Close()
	d, n := model.Descriptor(), m.Tokens()
	var rows kv.Rows
	var all [][]byte
	for _, t := range d.Tensors {
		first := 0
		if g := d.Groups[t.Group]; g.Kind == kv.Window {
			first = max(0, n-g.Window)
		}
		mem := make([]byte, (n-first)*t.RowBytes())
		all, rows = append(all, mem), append(rows, kv.Packed(first, n-first, mem))
	}
	got, err := m.Restore(ctx, rows)
	if err != nil || got.Tokens != n {
		return "", fmt.Errorf("%d of %d tokens: %w", got.Tokens, n, err)
	}
	h := sha256.New()
	for _, mem := range all {
		h.Write(mem)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}
