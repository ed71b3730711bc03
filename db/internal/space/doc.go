// Package space makes room in a store and gives room back: it evicts, destroys what is dead, moves what lives out of half-dead segments, and shrinks
// the index. Checkpoints are made through it, since they may have to make room for themselves.
package space
