package llamacpp

import (
	"fmt"
	"math"

	"github.com/dormousekv/dormouse/kv"
)

// cells is what a context's cells hold, sequence by sequence, as llama.cpp itself tells it. The file states.go moves their bytes.
type cells struct {
	lib     *Library
	lctx    uintptr
	memory  uintptr
	scratch int // the sequence that a Runtime keeps empty; -1: the context has no Runtime

	buf   []byte // a state, between llama.cpp and the store
	large []byte // the same until giveBack, if it is too large to be kept
}

func newCells(lib *Library, lctx uintptr) *cells {
	return &cells{lib: lib, lctx: lctx, memory: lib.GetMemory(lctx), scratch: -1}
}

func (c *cells) model() uintptr { return c.lib.GetModel(c.lctx) }

func (c *cells) sequences() int { return int(c.lib.Sequences(c.lctx)) }

// count is how many cells the context has.
func (c *cells) count() int { return int(c.lib.ContextTokens(c.lctx)) }

// recurrent reports whether all layers keep a state in place of rows: then a sequence is one cell.
func (c *cells) recurrent() bool { return c.lib.IsRecurrent(c.model()) }

// room is how many tokens a sequence can hold.
func (c *cells) room() int {
	if c.recurrent() { // its state does not grow
		return math.MaxInt
	}
	n := c.lib.ContextTokens(c.lctx)
	if c.lib.ContextTokensEach != nil {
		n = min(n, c.lib.ContextTokensEach(c.lctx))
	}
	return int(n)
}

// has refuses a sequence that the context does not have.
func (c *cells) has(sequence int) error {
	if n := c.sequences(); sequence < 0 || sequence >= n {
		return fmt.Errorf("%w: %d of %d", ErrSequence, sequence, n)
	}
	return nil
}

// ordinaryTokens are n from the middle half of the vocabulary: the first are control tokens in most.
func (c *cells) ordinaryTokens(n int) []kv.Token {
	all := c.lib.vocabulary(c.model())
	out := make([]kv.Token, n)
	for i := range out {
		switch {
		case all >= 4*n:
			out[i] = kv.Token(all/4 + i*(all/2/n))
		case all > 0:
			out[i] = kv.Token(i % all)
		default: // a binding without these functions
			out[i] = kv.Token(1 + i)
		}
	}
	return out
}

// tokens is how many positions the sequence has: one more than its last.
func (c *cells) tokens(sequence int) int {
	return int(c.lib.SequenceMax(c.memory, int32(sequence))) + 1
}

// others is how many cells other sequences may occupy of the buffer that this one shares with them. Cells that several
// of them share count for each.
func (c *cells) others(sequence int) (n int) {
	for i := range c.sequences() {
		if i != sequence {
			n += c.tokens(i)
		}
	}
	return n
}

// clear empties a sequence, and reports whether llama.cpp did.
func (c *cells) clear(sequence int) bool { return c.remove(sequence, -1, -1) }

// empty is clear with an error.
func (c *cells) empty(sequence int) error {
	if !c.clear(sequence) {
		return fmt.Errorf("%w: llama.cpp does not remove sequence %d", ErrState, sequence)
	}
	return nil
}

// remove takes the positions [start, end) from a sequence; -1: all.
func (c *cells) remove(sequence, start, end int) bool {
	return c.lib.SequenceRemove(c.memory, int32(sequence), int32(start), int32(end))
}

// share gives a sequence the positions [start, end) of another one, too; -1: all.
func (c *cells) share(from, to, start, end int) {
	c.lib.SequenceCopy(c.memory, int32(from), int32(to), int32(start), int32(end))
}
