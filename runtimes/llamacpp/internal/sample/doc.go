// Package sample knows rows of a cache again by a few of their values, so that a shift of positions, a late copy and tokens
// that were evaluated once more show in the rows themselves.
//
// It must not know llama.cpp's functions, the store, or whose rows they are.
package sample
