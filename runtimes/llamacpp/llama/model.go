//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package llama

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/dormousekv/dormouse/kv"
)

// ErrDecode is returned for a batch that llama_decode refused, or would abort for; the message carries its number, if it
// gave one (1: no room in the cache).
var ErrDecode = errors.New("llama: decode failed")

// ModelOptions say how to load a model. The zero value loads all layers where llama.cpp thinks best.
type ModelOptions struct {
	// CPUOnly keeps all layers off the GPU.
	CPUOnly bool
	// NoRepack keeps the weights as they are in the file (use_extra_bufts off): other kernels, a little slower.
	NoRepack bool
}

// Model is a loaded GGUF file.
type Model struct {
	lib   *Lib
	ptr   uintptr
	vocab uintptr
	path  string
}

// LoadModel reads a GGUF file. The error of one that could not be loaded says what llama.cpp logged.
func (l *Lib) LoadModel(path string, o ModelOptions) (*Model, error) {
	p := l.modelDefaults()
	if o.CPUOnly {
		p.gpuLayers = 0
	}
	p.useExtraBufts = !o.NoRepack
	var ptr uintptr
	if why := l.log.complaintsOf(func() { ptr = l.modelLoad(path, p) }); ptr == 0 {
		return nil, fmt.Errorf("llama: model %s could not be loaded: %v", path, why)
	}
	return &Model{lib: l, ptr: ptr, vocab: l.modelVocab(ptr), path: path}, nil
}

// Pointer is the llama_model pointer.
func (m *Model) Pointer() uintptr { return m.ptr }

// Path is the file that the model was loaded from.
func (m *Model) Path() string { return m.path }

// Vocabulary is the number of token ids.
func (m *Model) Vocabulary() int { return int(m.lib.vocabTokens(m.vocab)) }

// Close frees the model. Its contexts must be closed before.
func (m *Model) Close() {
	if m.ptr != 0 {
		m.lib.modelFree(m.ptr)
		m.ptr = 0
	}
}

// Tokenize turns text into token ids. special adds the tokens that the model wants around a text (BOS); control tokens
// that are spelled out in the text are parsed, too.
func (m *Model) Tokenize(text string, special bool) ([]int32, error) {
	return m.tokenize(text, special, true)
}

// TokenizeText turns text into token ids and takes nothing in it for a control token: what a user wrote.
func (m *Model) TokenizeText(text string) ([]int32, error) { return m.tokenize(text, false, false) }

func (m *Model) tokenize(text string, special, parse bool) ([]int32, error) {
	if m == nil || m.ptr == 0 {
		return nil, errClosed("model")
	}
	if !m.hasVocabulary() {
		return nil, fmt.Errorf("llama: %s has no vocabulary", m.path)
	}
	if text == "" && !special {
		return nil, nil
	}
	tokens := make([]int32, len(text)+8)
	n := m.lib.tokenize(m.vocab, text, int32(len(text)), &tokens[0], int32(len(tokens)), special, parse)
	if n < 0 {
		return nil, fmt.Errorf("llama: tokenize needs room for %d tokens", -n)
	}
	return tokens[:n], nil
}

// hasVocabulary is asked before text is: llama.cpp aborts the process otherwise.
func (m *Model) hasVocabulary() bool { return m.lib.vocabType(m.vocab) != 0 }

// Piece is the text of a token; empty for an id that the vocabulary does not have.
func (m *Model) Piece(token int32) string {
	if token < 0 || int(token) >= m.Vocabulary() || !m.hasVocabulary() {
		return ""
	}
	var buf [256]byte
	n := m.lib.tokenPiece(m.vocab, token, &buf[0], int32(len(buf)), 0, false)
	return string(buf[:max(n, 0)])
}

// CacheType is the element type of a KV cache, as ggml numbers it.
type CacheType int32

// Types of a KV cache. The zero value of [ContextOptions] means F16.
const (
	F32  CacheType = 0
	F16  CacheType = 1
	Q4_0 CacheType = 2
	Q8_0 CacheType = 8
	BF16 CacheType = 30
)

// ContextOptions say how to make a context. Zero values are llama.cpp's defaults, but for Tokens and threads.
type ContextOptions struct {
	Tokens         int   // n_ctx, for all sequences together; 0: 512
	Batch          int   // n_batch
	MicroBatch     int   // n_ubatch
	Sequences      int   // n_seq_max
	Threads        int   // n_threads_batch; 0: llama.cpp's (4), but at most as many as this process may use (GOMAXPROCS)
	DecodeThreads  int   // n_threads, for batches of one token; 0: Threads, and if that is 0, too, one processor stays free
	FlashAttention *bool // nil: llama.cpp chooses
	CacheK, CacheV *CacheType
	FullWindow     bool // swa_full: sliding-window layers keep all cells
	Unified        bool // kv_unified: sequences share one buffer
	Embeddings     bool // for [Context.Embed]: embeddings, and pooling_type mean

	// How positions and attention are computed, where that is not as the model says. Rows are then those of another model.
	RopeBase, RopeScale float32 // rope_freq_base, rope_freq_scale
	RopeScaling         *int32  // rope_scaling_type: 0 none, 1 linear, 2 YaRN; nil: the model's
	YarnOrig            int     // yarn_orig_ctx
	Attention           *int32  // attention_type: 0 causal, 1 not; nil: the model's
}

// threads are how many compute batches of one token and longer ones, where llama.cpp would take most, on so many processors. Its threads spin
// while they wait for one another, so that more of them than there are idle processors take seconds for a token.
func (o ContextOptions) threads(most int32, processors int) (decode, batch int32) {
	decode, batch = min(most, int32(max(1, processors-1))), min(most, int32(processors))
	if o.Threads > 0 {
		decode, batch = int32(o.Threads), int32(o.Threads)
	}
	if o.DecodeThreads > 0 {
		decode = int32(o.DecodeThreads)
	}
	return decode, batch
}

func errClosed(what string) error { return fmt.Errorf("llama: the %s is nil or closed", what) }

// Context is an evaluation state of a model with its KV cache.
type Context struct {
	model *Model
	ptr   uintptr
}

// NewContext makes a context.
func (m *Model) NewContext(o ContextOptions) (*Context, error) {
	if m == nil || m.ptr == 0 {
		return nil, errClosed("model")
	}
	p := m.lib.contextDefaults()
	set := func(field *uint32, v int) {
		if v > 0 {
			*field = uint32(v)
		}
	}
	set(&p.nCtx, o.Tokens)
	set(&p.nBatch, o.Batch)
	set(&p.nUbatch, o.MicroBatch)
	set(&p.nSeqMax, o.Sequences)
	p.threads, p.threadsBatch = o.threads(p.threadsBatch, runtime.GOMAXPROCS(0))
	if o.FlashAttention != nil {
		p.flashAttn = 0
		if *o.FlashAttention {
			p.flashAttn = 1
		}
	}
	if o.CacheK != nil {
		p.typeK = int32(*o.CacheK)
	}
	if o.CacheV != nil {
		p.typeV = int32(*o.CacheV)
	}
	if o.RopeScaling != nil {
		p.ropeScaling = *o.RopeScaling
	}
	if o.Attention != nil {
		p.attention = *o.Attention
	}
	p.ropeBase, p.ropeScale = o.RopeBase, o.RopeScale // 0: the model's
	set(&p.yarnOrigCtx, o.YarnOrig)
	flags := p.flags(m.lib.layout)
	flags.swaFull = o.FullWindow
	flags.kvUnified = o.Unified
	if o.Embeddings {
		flags.embeddings, p.pooling = true, 1
	}
	var ptr uintptr
	if why := m.lib.log.complaintsOf(func() { ptr = m.lib.initFromModel(m.ptr, p) }); ptr == 0 {
		return nil, fmt.Errorf("llama: no context could be made for %s: %v", m.path, why)
	}
	return &Context{model: m, ptr: ptr}, nil
}

// Pointer is the llama_context pointer.
func (c *Context) Pointer() uintptr { return c.ptr }

// Model is the model that the context evaluates.
func (c *Context) Model() *Model { return c.model }

// Decode evaluates tokens at the positions first, first+1, … of a sequence in one llama_decode call. It keeps the logits
// of the last token only.
func (c *Context) Decode(tokens []int32, first, sequence int) error {
	return c.decode(tokens, first, sequence, false)
}

// DecodeAll is [Context.Decode], but keeps the logits of every token.
func (c *Context) DecodeAll(tokens []int32, first, sequence int) error {
	return c.decode(tokens, first, sequence, true)
}

func (c *Context) decode(tokens []int32, first, sequence int, all bool) error {
	steps := make([]kv.Step, len(tokens))
	for i, t := range tokens {
		steps[i] = kv.Step{Token: t, Pos: first + i, Seq: sequence, Logits: all || i == len(tokens)-1}
	}
	return c.DecodeSteps(steps)
}

// DecodeSteps evaluates steps of any sequences in one llama_decode call. It keeps the logits of those that ask for them: those of
// steps[i] are Logits(i). Where the cache has no room it returns kv.ErrFull, and nothing has changed; after other errors of
// llama.cpp a part of the steps may be in the cache.
func (c *Context) DecodeSteps(steps []kv.Step) error {
	n := len(steps)
	if n == 0 {
		return nil
	}
	if c == nil || c.ptr == 0 {
		return errClosed("context")
	}
	// llama.cpp aborts the process for these.
	if most := c.model.lib.batchTokens(c.ptr); n > int(most) {
		return fmt.Errorf("%w: a batch of %d tokens, at most %d", ErrDecode, n, most)
	}
	most := int(c.model.lib.sequences(c.ptr))
	tokens, pos, seq := make([]int32, n), make([]int32, n), make([]int32, n)
	count, seqs, outputs := make([]int32, n), make([]uintptr, n), make([]int8, n)
	// C reads these arrays during the call: they hold addresses of one another, so they are pinned.
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&tokens[0])
	pins.Pin(&pos[0])
	pins.Pin(&count[0])
	pins.Pin(&outputs[0])
	pins.Pin(&seq[0])
	pins.Pin(&seqs[0])
	for i, s := range steps {
		if s.Seq < 0 || s.Seq >= most {
			return fmt.Errorf("%w: sequence %d of %d", ErrDecode, s.Seq, most)
		}
		tokens[i], pos[i], seq[i], count[i] = s.Token, int32(s.Pos), int32(s.Seq), 1
		seqs[i] = uintptr(unsafe.Pointer(&seq[i]))
		if s.Logits {
			outputs[i] = 1
		}
	}
	r := c.model.lib.decode(c.ptr, batch{
		n:       int32(n),
		token:   uintptr(unsafe.Pointer(&tokens[0])),
		pos:     uintptr(unsafe.Pointer(&pos[0])),
		nSeqID:  uintptr(unsafe.Pointer(&count[0])),
		seqID:   uintptr(unsafe.Pointer(&seqs[0])),
		outputs: uintptr(unsafe.Pointer(&outputs[0])),
	})
	switch r {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w: %w: llama_decode of %d tokens from position %d on", ErrDecode, kv.ErrFull, n, steps[0].Pos)
	}
	return fmt.Errorf("%w: llama_decode of %d tokens from position %d on returned %d", ErrDecode, n, steps[0].Pos, r)
}

// Logits copies the logits of batch token i of the last Decode; -1 is the last one that has any. Nil if there are none.
func (c *Context) Logits(i int) []float32 {
	if c.ptr == 0 {
		return nil
	}
	p := c.model.lib.logits(c.ptr, int32(i))
	if p == 0 {
		return nil
	}
	return append([]float32(nil), unsafe.Slice(*(**float32)(unsafe.Pointer(&p)), c.model.Vocabulary())...)
}

// Clear empties the whole cache. An encoder has none.
func (c *Context) Clear() {
	if m := c.model.lib.memory(c.ptr); m != 0 {
		c.model.lib.memoryClear(m, true)
	}
}

// Close frees the context.
func (c *Context) Close() {
	if c.ptr != 0 {
		c.model.lib.free(c.ptr)
		c.ptr = 0
	}
}
