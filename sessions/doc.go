// Package sessions keeps files of frames: one for each conversation, append-only, below the store's folder.
//
// It owns the bytes of such a file (docs/format/session.md draws them), and promises that a frame is there as a whole or not at all. The
// end that a crash tore is cut when a file is opened for writing. Damage of what had been durable is an error with file and offset, and
// nothing is changed then. A file is made, and replaced, by rename: at any time there is one whole file under its name, or none.
//
// It must not know what is in a frame, who reads it, and what else the store holds. A frame may hold a user's text: so [Remove] empties a
// file before it unlinks it, and takes what a crash left of another one with it.
package sessions
