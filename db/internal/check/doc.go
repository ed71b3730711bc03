// Package check compares every byte of an open store with what it should be: checksums, the index with the segments, the Bloom filter with the
// index, every block with its prefix. It changes nothing.
//
// Damage is what is wrong in a file that is still needed. A note costs nothing: a crash left it, the store rebuilds it anyway, or it is not
// the store's.
//
// The steps are in verify.go, from top to bottom. What they find is in report.go.
package check
