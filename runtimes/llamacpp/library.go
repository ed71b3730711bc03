package llamacpp

import (
	"fmt"
	"reflect"
	"strconv"
)

// FlagPartial asks for the part of a state that cannot be rolled back only: window layers, recurrent layers
// (LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY).
const FlagPartial = 1

// Library is the part of llama.h that this package calls: functions of pointers and integers, no structs, so that it works
// with the context of any build. [Bind] fills it in without cgo; a program that has a binding of its own, or runs where
// Bind does not (Android and iOS without cgo), fills in the fields itself. A nil field of the optional ones is missing.
//
// Calls for one context must not overlap, as in llama.cpp itself.
type Library struct {
	GetModel    func(ctx uintptr) uintptr `c:"llama_get_model"`
	GetMemory   func(ctx uintptr) uintptr `c:"llama_get_memory"`
	Synchronize func(ctx uintptr)         `c:"llama_synchronize"`

	ContextTokens func(ctx uintptr) uint32 `c:"llama_n_ctx"`
	Batch         func(ctx uintptr) uint32 `c:"llama_n_batch"`
	MicroBatch    func(ctx uintptr) uint32 `c:"llama_n_ubatch"`
	Sequences     func(ctx uintptr) uint32 `c:"llama_n_seq_max"`

	// size and length are size_t, sequence is llama_seq_id.
	StateSize func(ctx uintptr, sequence int32, flags uint32) uintptr                            `c:"llama_state_seq_get_size_ext"`
	StateGet  func(ctx uintptr, dst *byte, size uintptr, sequence int32, flags uint32) uintptr   `c:"llama_state_seq_get_data_ext"`
	StateSet  func(ctx uintptr, src *byte, length uintptr, sequence int32, flags uint32) uintptr `c:"llama_state_seq_set_data_ext"`

	SequenceRemove func(memory uintptr, sequence, from, to int32) bool `c:"llama_memory_seq_rm"`
	SequenceMax    func(memory uintptr, sequence int32) int32          `c:"llama_memory_seq_pos_max"`

	Layers      func(model uintptr) int32                                      `c:"llama_model_n_layer"`
	Heads       func(model uintptr) int32                                      `c:"llama_model_n_head"`
	Embedding   func(model uintptr) int32                                      `c:"llama_model_n_embd"`
	Window      func(model uintptr) int32                                      `c:"llama_model_n_swa"`
	RopeType    func(model uintptr) int32                                      `c:"llama_model_rope_type"`
	RopeScale   func(model uintptr) float32                                    `c:"llama_model_rope_freq_scale_train"`
	HasEncoder  func(model uintptr) bool                                       `c:"llama_model_has_encoder"`
	IsRecurrent func(model uintptr) bool                                       `c:"llama_model_is_recurrent"`
	MetaCount   func(model uintptr) int32                                      `c:"llama_model_meta_count"`
	MetaKey     func(model uintptr, i int32, buf *byte, size uintptr) int32    `c:"llama_model_meta_key_by_index"`
	MetaIndex   func(model uintptr, i int32, buf *byte, size uintptr) int32    `c:"llama_model_meta_val_str_by_index"`
	Meta        func(model uintptr, key string, buf *byte, size uintptr) int32 `c:"llama_model_meta_val_str"`

	// Optional: releases before them lack them.
	IsHybrid    func(model uintptr) bool `c:"llama_model_is_hybrid,optional"`
	IsDiffusion func(model uintptr) bool `c:"llama_model_is_diffusion,optional"`
	Version     func() string            `c:"llama_version,optional"`

	// SequenceCopy lets the sequence to hold the positions [p0, p1) of the sequence from, too; -1: all.
	SequenceCopy func(memory uintptr, from, to, p0, p1 int32) `c:"llama_memory_seq_cp,optional"`

	// What is compared with the file that Identity names, and where an ordinary token is.
	ModelBytes       func(model uintptr) uint64  `c:"llama_model_size,optional"`
	ModelValues      func(model uintptr) uint64  `c:"llama_model_n_params,optional"`
	Vocabulary       func(model uintptr) uintptr `c:"llama_model_get_vocab,optional"`
	VocabularyTokens func(vocab uintptr) int32   `c:"llama_vocab_n_tokens,optional"`

	// SequenceMin is the first position of which all layers have the rows. Without it, a sequence of a sliding-window model from which positions were
	// removed is refused.
	SequenceMin func(memory uintptr, sequence int32) int32 `c:"llama_memory_seq_pos_min,optional"`

	// CanShift says whether positions of the memory can be shifted. Without it they are taken to be.
	CanShift func(memory uintptr) bool `c:"llama_memory_can_shift,optional"`
	// Logits are those of the last decode, which Save and Restore leave as they are where they have to evaluate a token.
	Logits func(ctx uintptr) *float32 `c:"llama_get_logits,optional"`
	// SetAdapters sets the LoRA adapters of a context: n pointers of them, and as many scales. Without it, Session.SetAdapters is refused.
	SetAdapters func(ctx uintptr, adapters *uintptr, n uintptr, scales *float32) int32 `c:"llama_set_adapters_lora,optional"`

	// ContextTokensEach is what one sequence may hold, where that is less than the context.
	ContextTokensEach func(ctx uintptr) uint32 `c:"llama_n_ctx_seq,optional"`
}

// check names the first required function that is missing.
func (l *Library) check() error {
	v := reflect.ValueOf(l).Elem()
	for i := range v.NumField() {
		name, optional := symbol(v.Type().Field(i))
		if v.Field(i).IsNil() && !optional {
			return fmt.Errorf("%w: the library has no %s", ErrRefused, name)
		}
	}
	return nil
}

// symbol is the C function behind a field of Library.
func symbol(f reflect.StructField) (name string, optional bool) {
	const suffix = ",optional"
	name = f.Tag.Get("c")
	if n := len(name) - len(suffix); n > 0 && name[n:] == suffix {
		return name[:n], true
	}
	return name, false
}

// meta returns a metadata value of the model as text. Arrays read as whatever the library makes of them.
func (l *Library) meta(model uintptr, key string) (string, bool) {
	return text(func(buf *byte, size uintptr) int32 { return l.Meta(model, key, buf, size) })
}

func text(get func(buf *byte, size uintptr) int32) (string, bool) {
	buf := make([]byte, 512)
	n := get(&buf[0], uintptr(len(buf)))
	if n < 0 {
		return "", false
	}
	if int(n) >= len(buf) && n < 1<<20 {
		buf = make([]byte, n+1)
		n = get(&buf[0], uintptr(len(buf)))
	}
	return string(buf[:max(0, min(int(n), len(buf)-1))]), true
}

// trained is how many positions the model was trained for; 0 if it does not say that.
func (l *Library) trained(model uintptr, arch string) int {
	text, _ := l.meta(model, arch+".context_length")
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return max(0, n)
}

// vocabulary is how many tokens the model knows; 0 if the library does not tell.
func (l *Library) vocabulary(model uintptr) int {
	if l.Vocabulary == nil || l.VocabularyTokens == nil {
		return 0
	}
	return int(l.VocabularyTokens(l.Vocabulary(model)))
}
