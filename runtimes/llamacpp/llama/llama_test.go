//go:build (linux && !android) || (darwin && !ios)

package llama

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
)

// The layouts of include/llama.h, releases 0.5.0 and 0.7.0, on 64-bit systems.
func TestLayout(t *testing.T) {
	var m modelParams
	var c contextParams
	var b batch
	at := func(p unsafe.Pointer) uintptr { return uintptr(p) - uintptr(unsafe.Pointer(&c)) }
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
		{"abort_callback", unsafe.Offsetof(c.tail), 0x70},
		{"embeddings", at(unsafe.Pointer(c.flags(layouts[0]))), 0x80},
		{"kv_unified", at(unsafe.Pointer(&c.flags(layouts[0]).kvUnified)), 0x85},
		{"embeddings, 0.7.0", at(unsafe.Pointer(c.flags(layouts[1]))), 0x88},
		{"llama_batch", unsafe.Sizeof(b), 56},
	} {
		if x.found != x.want {
			t.Errorf("%s is at %#x, expected %#x", x.what, x.found, x.want)
		}
	}
}

// defaults are those of a release of that layout.
func defaults(l layout) (modelParams, contextParams) {
	m := modelParams{gpuLayers: -1, splitMode: 1, loadMode: -1, lazyMode: 1, useExtraBufts: true}
	c := contextParams{nCtx: 512, nBatch: 2048, nUbatch: 512, nSeqMax: 1, nOutputsMaxPerSeq: 1, threads: 4, threadsBatch: 4, ropeScaling: -1,
		pooling: -1, attention: -1, flashAttn: -1, yarnExt: -1, defragThreshold: -1, typeK: 1, typeV: 1}
	*c.flags(l) = contextFlags{offloadKQV: true, noPerf: true, opOffload: true, swaFull: true}
	return m, c
}

// Each known layout is told from the others; a struct with a field more or less somewhere is not used.
func TestOtherLayoutIsRefused(t *testing.T) {
	if _, err := checkLayout(modelParams{}, contextParams{}); !errors.Is(err, ErrLayout) {
		t.Errorf("zeros: %v", err)
	}
	shift := func(p unsafe.Pointer, n uintptr, at, by uintptr) {
		b := unsafe.Slice((*byte)(p), n)
		copy(b[at+by:], append([]byte(nil), b[at:n-by]...))
		clear(b[at : at+by])
	}
	for _, l := range layouts {
		m, c := defaults(l)
		if found, err := checkLayout(m, c); err != nil || found != l {
			t.Fatalf("the defaults of %v are taken for those of %v: %v", l, found, err)
		}
		for at := uintptr(0); at < 0x40; at += 4 {
			x := m
			shift(unsafe.Pointer(&x), unsafe.Sizeof(x), at, 4)
			if _, err := checkLayout(x, c); !errors.Is(err, ErrLayout) && at < 0x1c {
				t.Errorf("%s: a new field at %#x of llama_model_params: %v", l.releases, at, err)
			}
		}
		for at := uintptr(0); at < 0x80; at += 4 {
			x := c
			shift(unsafe.Pointer(&x), unsafe.Sizeof(x), at, 4)
			if _, err := checkLayout(m, x); !errors.Is(err, ErrLayout) {
				t.Errorf("%s: a new field at %#x of llama_context_params: %v", l.releases, at, err)
			}
		}
	}
	_, err := checkLayout(modelParams{}, contextParams{})
	for _, want := range []string{"/some/lib", "0.9.9", "0.5.0", "0.7.0", "llamacpp.Attach"} {
		if err := unknown("/some/lib", "0.9.9", err); !errors.Is(err, ErrLayout) || !strings.Contains(err.Error(), want) {
			t.Errorf("the refusal does not say %s: %v", want, err)
		}
	}
}

func TestModel(t *testing.T) {
	lib := load(t)
	t.Logf("llama.cpp %s", lib.Version())
	if _, err := lib.LoadModel("testdata/none.gguf", ModelOptions{}); err == nil {
		t.Error("a model that does not exist was loaded")
	}
	m := loadModel(t, lib, "../testdata/stories260K-f32.gguf")
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
	path := writeModel(t, ggufgen.LLaMA(1, 1, 32))
	mute := loadModel(t, lib, path)
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

// A template is applied by its name or its text; one that llama.cpp does not know is an error. What a user spells out is no control token.
func TestTemplate(t *testing.T) {
	lib := load(t)
	messages := []Message{{"system", "Be brief."}, {"user", strings.Repeat("Hello! ", 1000)}}
	want := "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n" + messages[1].Content + "<|im_end|>\n<|im_start|>assistant\n"
	for _, template := range []string{"chatml", "{{ '<|im_start|>' + message['role'] + '\\n' }}"} {
		if got, err := lib.ApplyTemplate(template, messages, true); err != nil || got != want {
			t.Errorf("%s: %d bytes, expected %d: %v", template, len(got), len(want), err)
		}
	}
	for _, template := range []string{"", "{{ messages }}"} {
		if _, err := lib.ApplyTemplate(template, messages, true); !errors.Is(err, ErrTemplate) {
			t.Errorf("%q: %v", template, err)
		}
	}
	if _, err := lib.ApplyTemplate("chatml", []Message{{"user", "a\x00b"}}, true); !errors.Is(err, ErrTemplate) {
		t.Errorf("a byte of 0: %v", err)
	}
	m := loadModel(t, lib, "../testdata/stories260K-f32.gguf")
	if got := m.Template(); got != "" {
		t.Errorf("a model without a template has %q", got)
	}
	const end = 2
	if !m.Ends(end) || m.Ends(end+1) || m.Ends(-1) || m.Ends(1<<30) {
		t.Error("only </s> ends an answer")
	}
	if parsed, err := m.Tokenize("</s>", false); err != nil || len(parsed) != 1 || parsed[0] != end {
		t.Errorf("control token: %v, %v", parsed, err)
	}
	if plain, err := m.TokenizeText("</s>"); err != nil || len(plain) < 2 {
		t.Errorf("the same as text: %v, %v", plain, err)
	}
}

// Nobody who leaves the threads out gets more of them than there are processors: they would wait for one another for seconds a token.
func TestThreads(t *testing.T) {
	for _, x := range []struct {
		o             ContextOptions
		processors    int
		decode, batch int32
	}{
		{ContextOptions{}, 1, 1, 1},
		{ContextOptions{}, 2, 1, 2},
		{ContextOptions{}, 4, 3, 4},
		{ContextOptions{}, 64, 4, 4},
		{ContextOptions{Threads: 8}, 2, 8, 8},
		{ContextOptions{DecodeThreads: 6}, 2, 6, 2},
		{ContextOptions{Threads: 3, DecodeThreads: 2}, 2, 2, 3},
		{ContextOptions{Threads: -4, DecodeThreads: -1}, 2, 1, 2},
	} {
		if decode, batch := x.o.threads(4, x.processors); decode != x.decode || batch != x.batch {
			t.Errorf("%+v on %d processors: %d and %d, want %d and %d", x.o, x.processors, decode, batch, x.decode, x.batch)
		}
	}
	lib := load(t)
	c, err := loadModel(t, lib, "../testdata/stories260K-f32.gguf").NewContext(ContextOptions{Tokens: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	decode, batch := ContextOptions{}.threads(4, runtime.GOMAXPROCS(0))
	for name, want := range map[string]int32{"llama_n_threads": decode, "llama_n_threads_batch": batch} {
		f, err := lib.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if n, _, _ := purego.SyscallN(f, c.Pointer()); int32(n) != want {
			t.Errorf("%s: %d, want %d", name, int32(n), want)
		}
	}
}
