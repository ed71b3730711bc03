// Package check compares every byte of an open store with what it should be: checksums, the index with the segments, the Bloom filter with the
// index, every block with its prefix. It changes nothing.
package check
