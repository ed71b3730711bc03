// Package canary is what a context computes for a few tokens, as a note of the store. By it another process tells whether
// its context computes the rows that are stored.
//
// It promises that Decode reads what Encode wrote, and takes other bytes for no canary. It must not know llama.cpp's
// functions or the store.
package canary
