// Package gguf reads the header of GGUF model files: metadata and tensor descriptions, not the weights.
//
// It owns [Open] and [Read], which bound every length by the file's size before anything is allocated or skipped, and
// the hashes that identify a model: [WeightsHash] over all bytes, [File.MetaHash] over part of the metadata.
//
// It promises that no file makes it panic, and different errors for a file that is not GGUF ([ErrMagic]), one of a
// version that is not known ([ErrVersion]) and one that contradicts itself ([ErrFormat]).
//
// Folder tokenizer makes token ids of text with what a file says of its tokenizer.
//
// The format is specified in docs/gguf.md of github.com/ggml-org/ggml. It must not know about stores or runtimes.
package gguf
