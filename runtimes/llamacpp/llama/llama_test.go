//go:build (linux && !android) || (darwin && !ios)

package llama

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
)

// The layout of include/llama.h, release v0.5.0, on 64-bit systems.
func TestLayout(t *testing.T) {
	var m modelParams
	var c contextParams
	var b batch
	for _, x := range []struct {
		what        string
		found, want uintptr
	}{
		{"n_gpu_layers", unsafe.Offsetof(m.gpuLayers), 0x10},
		{"main_gpu", unsafe.Offsetof(m.mainGPU), 0x20},
		{"tensor_split", unsafe.Offsetof(m.tensorSplit), 0x28},
		{"kv_overrides", unsafe.Offsetof(m.overrides), 0x40},
		{"vocab_only", unsafe.Offsetof(m.vocabOnly), 0x48},
		{"llama_model_params", unsafe.Offsetof(m.slack), 0x50},
		{"n_threads", unsafe.Offsetof(c.threads), 0x1c},
		{"flash_attn_type", unsafe.Offsetof(c.flashAttn), 0x34},
		{"rope_freq_base", unsafe.Offsetof(c.ropeBase), 0x38},
		{"defrag_thold", unsafe.Offsetof(c.defragThreshold), 0x54},
		{"cb_eval", unsafe.Offsetof(c.evalCallback), 0x58},
		{"type_k", unsafe.Offsetof(c.typeK), 0x68},
		{"embeddings", unsafe.Offsetof(c.embeddings), 0x80},
		{"samplers", unsafe.Offsetof(c.samplers), 0x88},
		{"llama_context_params", unsafe.Offsetof(c.slack), 0xa0},
		{"llama_batch", unsafe.Sizeof(b), 56},
	} {
		if x.found != x.want {
			t.Errorf("%s is at %#x, expected %#x", x.what, x.found, x.want)
		}
	}
}

// A struct with a field more or less somewhere is not used.
func TestOtherLayoutIsRefused(t *testing.T) {
	m, c := modelParams{}, contextParams{}
	if err := checkLayout(m, c); !errors.Is(err, ErrLayout) {
		t.Errorf("zeros: %v", err)
	}
	lib := load(t)
	m, c = lib.modelDefaults(), lib.contextDefaults()
	if err := checkLayout(m, c); err != nil {
		t.Fatal(err)
	}
	shift := func(p unsafe.Pointer, n uintptr, at, by uintptr) {
		b := unsafe.Slice((*byte)(p), n)
		copy(b[at+by:], append([]byte(nil), b[at:n-by]...))
		clear(b[at : at+by])
	}
	for at := uintptr(0); at < 0x40; at += 4 {
		x := m
		shift(unsafe.Pointer(&x), unsafe.Sizeof(x), at, 4)
		if err := checkLayout(x, c); !errors.Is(err, ErrLayout) && at < 0x1c {
			t.Errorf("a new field at %#x of llama_model_params: %v", at, err)
		}
	}
	for at := uintptr(0); at < 0x80; at += 4 {
		x := c
		shift(unsafe.Pointer(&x), unsafe.Sizeof(x), at, 4)
		if err := checkLayout(m, x); !errors.Is(err, ErrLayout) {
			t.Errorf("a new field at %#x of llama_context_params: %v", at, err)
		}
	}
}

func load(t *testing.T) *Lib {
	t.Helper()
	dir := os.Getenv("DORMOUSE_LLAMA_LIB")
	if dir == "" {
		t.Skip("SKIPPED, llama.cpp is not tried: DORMOUSE_LLAMA_LIB is not set; tests/llama/fetch.sh fetches the libraries")
	}
	lib, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

func TestModel(t *testing.T) {
	lib := load(t)
	t.Logf("llama.cpp %s", lib.Version())
	if _, err := lib.LoadModel("testdata/none.gguf", ModelOptions{}); err == nil {
		t.Error("a model that does not exist was loaded")
	}
	m, err := lib.LoadModel("../testdata/stories260K-f32.gguf", ModelOptions{CPUOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tokens, err := m.Tokenize("Once upon a time", true)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, x := range tokens {
		text += m.Piece(x)
	}
	if text != " Once upon a time" {
		t.Errorf("%v reads %q", tokens, text)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, ggufgen.LLaMA(1, 1, 32), 0o644); err != nil {
		t.Fatal(err)
	}
	mute, err := lib.LoadModel(path, ModelOptions{CPUOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	if _, err := mute.Tokenize("a", true); err == nil || mute.Piece(1) != "" {
		t.Errorf("text of a model without a vocabulary: %v", err)
	}
	c, err := m.NewContext(ContextOptions{Tokens: 64, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.DecodeAll(tokens, 0, 0); err != nil {
		t.Fatal(err)
	}
	if first, last := c.Logits(0), c.Logits(-1); len(first) != m.Vocabulary() || len(last) != len(first) || first[5] == last[5] {
		t.Error("the logits of the first and the last token are the same")
	}
	for _, x := range c.Logits(-1) {
		if math.IsNaN(float64(x)) {
			t.Fatal("a logit is not a number")
		}
	}
	c.Clear()
	for name, err := range map[string]error{
		"more than the batch": c.Decode(make([]int32, 4096), 0, 0),
		"another sequence":    c.Decode([]int32{1}, 0, 1),
		"token id":            c.Decode([]int32{int32(m.Vocabulary())}, 0, 0),
		"position":            c.Decode([]int32{1}, -5, 0),
	} {
		if !errors.Is(err, ErrDecode) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := m.Piece(int32(m.Vocabulary())) + m.Piece(-1); s != "" {
		t.Errorf("tokens that do not exist read %q", s)
	}
}
