// Package window keeps rows of window layers that were copied out of a cache before the cache forgets them.
//
// It must not know llama.cpp's functions, the store, or whose rows they are.
package window
