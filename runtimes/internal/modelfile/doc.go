// Package modelfile reads of a GGUF file what its model is known by: the hash of its bytes, and what its head says. A memo beside it remembers
// both, by what changes when a file does.
//
// It promises that the metadata of a file and that of the model which llama.cpp loaded from it are spelled alike ([Spelled]), and that a
// memo which cannot be read or written costs time only. It must not know llama.cpp's library.
package modelfile
