// Package layout says where the tensors of a descriptor lie in the state of a sequence that llama.cpp hands out.
//
// It knows positions, sections and bytes. It must not know llama.cpp's functions, the store, or what a session has seen.
package layout
