// Package llama loads stock llama.cpp shared libraries without cgo and runs models with them.
//
// It owns
//
//   - [Load], which opens the libraries of a folder and their CPU or GPU backends;
//   - [Model] and [Context]: loading a GGUF file, tokens, decoding, logits.
//
// It promises to refuse a library whose parameter structs it does not know ([ErrLayout]) rather than to pass it garbage:
// the structs have no version, so their defaults are compared with those of the releases listed in docs/llamacpp.md.
//
// Nothing of the cache needs this package: package llamacpp works with the context pointer of any build of llama.cpp,
// however it was made. This one is for programs that have no binding of their own, and for the tests.
//
// It must not know about stores, prompts or blobs. Of kv it takes what a batch is made of: kv.Step and kv.ErrFull.
package llama
