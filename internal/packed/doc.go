// Package packed has the bytes of a model's descriptor, as the log and the header of each segment hold them, and what such bytes are
// made of: numbers, strings and lists in fixed places, read with a [Reader].
//
// Tensors that repeat from layer to layer, as most do, are written once: a descriptor takes some 160 bytes. Its name is not among them: it
// is no part of a model's identity, and whoever stores a descriptor has it at hand.
//
// A Reader trusts nothing: each length is compared with the bytes that are left before anything is allocated. What cannot be is [ErrMalformed];
// an element type, a role or a kind of group that this release has no meaning for is vfs.ErrVersion. docs/format/oplog.md draws the bytes, the
// golden files of oplog and segments pin them. The package must not know where they lie, nor which fingerprint they should have.
package packed
