// Package ggufgen writes GGUF files of tiny models with random weights and no vocabulary, for tests: every kind of cache
// that llama.cpp has can be had in a few hundred kilobytes, without downloading anything.
//
// It owns [Writer], a plain GGUF version 3 writer, and one function a model architecture ([LLaMA], [Gemma3], [Mamba], …).
//
// It promises the same bytes for the same arguments. The models say nothing sensible, but their logits depend on every
// earlier token, which is what a cache test needs.
package ggufgen
