package inplace

import "github.com/dormousekv/dormouse/internal/tiny"

// Model is the small transformer, a decoder of 9.3 million weights in plain Go.
type Model = tiny.Model

// Tokenizer makes tokens of text (Encode) and text of tokens (Decode).
type Tokenizer = tiny.Tokenizer

// Small makes the small transformer, for programs that try package chat with nothing but Go: the model that [New] takes, and its tokenizer. The
// weights are random, the same everywhere for a seed. Nobody trained them: it writes words without sense, and knows no token that ends an answer.
func Small(seed uint64) (*Model, *Tokenizer) {
	words := tiny.NewTokenizer()
	m, err := tiny.New(tiny.Default(words), seed)
	if err != nil {
		panic(err) // the default shape is valid
	}
	return m, words
}
