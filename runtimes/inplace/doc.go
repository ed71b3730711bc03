// Package inplace is a runtime whose attention reads the KV cache where it lies: in a file that is mapped and shared, so that a process that
// was killed in the middle of a turn maps it again and goes on without a restore.
//
// It owns
//
//   - [Ring]: the file. Of every layer a plane of K and one of V, f16, row after row; the cells that hold rows, and the turns that are whole,
//     each with a generation and a checksum. Any runtime with an attention of its own can put its rows there;
//   - [Runtime]: the small transformer of internal/tiny on a ring and a store, with the methods that package chat asks of a runtime.
//
// It promises that what a process left behind is what the next one finds: a turn that was whole, by its checksum, and nothing of one that
// was not; that a full disk is an error when a ring is made and never a fault afterwards; and that a damaged file is an error with file and
// offset, or a turn less, never a panic. A ring is a cache: nothing in it is the only copy, and nothing waits for the disk.
//
// It must not know package chat, nor how a store keeps rows. docs/format/ring.md draws the file.
package inplace
