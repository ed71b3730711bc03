// Package portrait is how rows are known again: a few numbers of what a model computes for a few tokens, by which another process tells
// whether what it computes now are the same rows, but for rounding.
//
// It promises that a portrait is the same bytes in every process and release, and fits into a note of the store ([MaxBytes]). What numerics explain
// was measured; docs/llamacpp-checks.md has the figures. It must not know who computes, or where portraits are kept.
package portrait
