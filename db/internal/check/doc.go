// Package check compares every byte of an open store with what it should be: checksums, the index with the segments, the Bloom filter with the
// index, every block with its prefix. It changes nothing.
//
// Damage is what is wrong in a file that is still needed. What a crash leaves, what is rebuilt anyway and what is not the store's is a note:
// it costs nothing.
package check
