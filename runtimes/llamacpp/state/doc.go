// Package state reads and writes the blobs in which llama.cpp hands out the KV cache of one sequence
// (llama_state_seq_get_data), and the slot files of llama-server, without llama.cpp.
//
// It owns
//
//   - [Format], what a blob says about the cache it comes from, learned from a small blob of that very cache ([Learn]):
//     the blobs carry no version and their layout has changed under an unchanged version number;
//   - [Format.Parse] and [Format.Build], and [Section.Rows]: the canonical rows of a layer, in position order, one row a token, whether
//     the cache is row-major or, without flash attention, channel-major;
//   - [FileFormat], the same for the files in which llama-server saves its slots ([LearnFile]), and what a server needs to
//     find in a [File] before it uses it.
//
// It promises that no blob makes it panic or allocate more than a small multiple of the blob's size, that a blob that
// does not fit the format exactly, to its last byte, is refused with [ErrBlob], and that Parse and Build are inverses. So it is with files.
//
// It must not know about stores, models, or the library.
package state
