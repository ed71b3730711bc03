package storetest

import (
	"testing"

	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/kv"
)

// Truth returns the right row of a tensor at position pos of p. Scope does not matter: it changes no computation.
func Truth(d kv.Descriptor, p *kv.Prompt, tensor, pos int) []byte {
	return crashtest.Truth(d, p, tensor, pos)
}

// Filled returns right rows for the positions [first, end) of every tensor, and the state at end.
func Filled(d kv.Descriptor, p *kv.Prompt, first, end int) kv.Rows {
	return crashtest.Filled(d, p, first, end)
}

// Empty returns memory for n positions, full of rubbish.
func Empty(d kv.Descriptor, n int) kv.Rows { return crashtest.Empty(d, n) }

// CheckRows compares what a restore of n tokens left in rows with the truth.
func CheckRows(t testing.TB, d kv.Descriptor, p *kv.Prompt, rows kv.Rows, n int) {
	t.Helper()
	OK(t, crashtest.Check(d, p, rows, n))
}
