package ggufgen

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
)

// WithText gives a model of this package a vocabulary, a token for each ASCII character: servers and other programs that show what
// a model says want one.
func WithText(model []byte) []byte {
	none := Writer{}
	none.String(tokenizerKey, noVocabulary)
	at := bytes.Index(model, none.keys)
	if at < 0 {
		panic("ggufgen: the model has a vocabulary")
	}
	text := Writer{}
	text.String(tokenizerKey, "gpt2")
	tokens := make([]string, Vocabulary)
	for i := range tokens {
		tokens[i] = string(rune(i))
		if i <= ' ' || i == 127 { // as GPT-2's vocabulary spells bytes that are not to be seen
			tokens[i] = string(rune(i + 256))
		}
	}
	text.Strings("tokenizer.ggml.tokens", tokens...)
	text.Strings("tokenizer.ggml.merges", "a b")
	text.Uint("tokenizer.ggml.bos_token_id", 0)
	text.Uint("tokenizer.ggml.eos_token_id", 0)
	// What comes behind is aligned, and stays so.
	filler := Writer{}
	filler.String("filler", "")
	rest := (len(text.keys) + len(filler.keys) - len(none.keys)) % alignment
	text.String("filler", strings.Repeat(" ", (alignment-rest)%alignment))
	out := slices.Concat(model[:at], text.keys, model[at+len(none.keys):])
	binary.LittleEndian.PutUint64(out[16:], binary.LittleEndian.Uint64(out[16:])+text.n-none.n)
	return out
}
