// Package tokenizer turns text into token ids as llama.cpp does, with what a GGUF file says of its tokenizer.
//
// It knows two kinds: "llama" (SentencePiece: characters are merged by score), and "gpt2" (byte pairs, merged by rank) with the
// pre-tokenizer "smollm". Any other is refused by name ([ErrKind]): a wrong id would explain nothing. A test compares both
// with llama.cpp itself, on real models, token for token.
package tokenizer
