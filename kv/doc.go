// Package kv is the vocabulary that every other package of Dormouse speaks: what a prompt is, what makes two KV caches
// incompatible, how a prefix is named, and where a caller's rows lie in memory.
//
// It owns
//
//   - [Prompt] with its spans, adapters and scope, and how a prompt is cut into blocks ([Prompt.Blocks]);
//   - [Descriptor] with its [Tensor]s and [Group]s, its [Fingerprint] and the field-by-field [Descriptor.Diff];
//   - [Key], [Hasher] and [Chain]: chained prefix hashing, computed lazily, block by block;
//   - [Rows]: the caller's memory, piece by piece, with row and element strides;
//   - [Reason] and [NotStoredError]: why a stored prefix is no longer than it is.
//
// It promises that equal inputs give equal keys in every process and on every architecture, for a given store seed.
// Nobody can make two prompts with one key. Whoever hands out a row compares tokens, spans, scope and fingerprint all the same: what
// lies under a key on a disk may be something else.
//
// It must not know about files, codecs, or any other package of this module.
package kv
