package chat

import (
	"context"

	"github.com/dormousekv/dormouse/kv"
)

// Runtime computes tokens in one cache that several sequences share. A sequence is a set of rows, each at a position of its own; positions
// may have holes. A step attends to the rows of its sequence before its position and to itself. A [Host] calls it from one goroutine at a time.
//
// A Runtime belongs to one model of one store. Package runtimes/conformance tests all that is said here.
//
// One that keeps rows in a third place, beside its sequences and the store, has a method Clear(), which drops those that no sequence has:
// [Host.Delete] and [Conversation.Forget] call it.
type Runtime interface {
	// Decode computes steps, of any sequences, in order of position within each. The first step of a sequence that has rows comes right
	// after its last row. On kv.ErrFull, and on any other error, no sequence has changed.
	Decode(ctx context.Context, steps []kv.Step) error

	// Logits returns the scores of all tokens to come after a step of the last Decode, which asked for them. They are the runtime's memory,
	// valid until the next call of Decode.
	Logits(step int) []float32

	// Copy gives sequence to the rows that from has in the range; the cells are shared. What to has elsewhere stays, in the range it has
	// none yet.
	Copy(from, to int, r kv.Range) error

	// Remove takes the rows in the range from a sequence. A cell that no other sequence has is free then.
	Remove(seq int, r kv.Range) error

	// Load puts stored rows of the prompt into a sequence, which keeps what it has outside of the ranges and has nothing in them. It returns
	// how many leading tokens of the prompt are stored, n: of each range what lies before n was loaded, unless an error is returned, when
	// nothing was. A range that begins at or behind n is no error.
	Load(ctx context.Context, p kv.Prompt, seq int, ranges []kv.Range) (n int, err error)

	// Store puts the rows that a sequence has in the range into the store, as rows of the prompt. The prompt's tokens up to r.Start are
	// stored already or lie in the sequence; what follows r.End is not looked at.
	Store(ctx context.Context, p kv.Prompt, seq int, r kv.Range) error

	// Limits is what the runtime has room for. It does not change.
	Limits() kv.Limits
}
