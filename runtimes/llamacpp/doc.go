// Package llamacpp keeps the KV cache of stock llama.cpp in a Dormouse store: no fork, no cgo.
//
//	s, err := llamacpp.Attach(ctx, store, lib, llamaContext, llamacpp.Options{
//		Identity: llamacpp.Identity{Path: "model.gguf"}, Decode: decode,
//	})
//	got, err := s.Restore(ctx, prompt, 0)       // got.Tokens tokens need no evaluation
//	err = s.Prefill(ctx, prompt, got.Tokens, 0) // or evaluate prompt[got.Tokens:] yourself
//	_, err = s.Save(ctx, prompt, 0)
//
// It owns the way from a sequence's state blob to canonical rows and back: what of a model can be cut at any token, what
// only has a window of rows, what is kept whole ([Opaque]) and what is refused. [Attach] decides by taking a blob of the
// target's own context apart and building it again.
//
// [Session.Runtime] makes the context one that holds conversations: several sequences that share cells, and ranges of rows in and out.
//
// It promises that a context never gets rows of another model, cache type or position; that a sequence is either restored
// up to Restored.Tokens or empty; and that it calls llama.cpp only with pointers and integers ([Library]), so that the
// context may come from any build. Package llama, below, loads models for programs that have no binding of their own.
//
// Its rooms, from the bottom up: cells (what the context holds), form (how states are made), known (what the session saw
// come), deferred (work that llama.cpp puts off), identity (the canary), turns, restoring, saving and [Runtime]. A [Session]
// joins them, and no room knows it.
//
// It must not know what is in a blob (package state), in a model's file (internal/modelfile) nor on the disk (package db). Its tests run on a
// context in Go; those that run llama.cpp are in folder real.
package llamacpp
