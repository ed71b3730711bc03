// Package replay plays recorded traffic into a store and compares its hit rates with an independent simulation. It has
// tests only.
package replay
