package llamacpp

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// A state that cannot be cut to a shorter prefix is of use only where it was taken. So Prefill takes some on the way: one shortly
// before the end of the prompt, for the same prompt again or one that ends otherwise, and in long prompts one now and then.
const (
	// nearEnd is how many tokens before the end of the prompt a state is taken: what templates put behind a last message.
	nearEnd = 4
	// nearBefore is how far behind the last state it must be: fewer tokens are evaluated sooner than a state is worth its bytes.
	nearBefore = 64
	// farApart is the least distance of the others, in tokens.
	farApart = 512
)

// batchEnd is where a batch of Prefill that begins at from ends: at a multiple of the batch, or where a state is to be taken. last is
// after how many tokens the last one was.
func (f *form) batchEnd(prompt kv.Prompt, from, batch, last int) int {
	n := len(prompt.Tokens)
	end := min(n, (from/batch+1)*batch)
	for at := from + 1; at < end; at++ {
		if near(n, at, last) && f.stops() && prompt.Clip(at) == at {
			return at
		}
	}
	return end
}

// near reports whether a state is to be taken after at of n tokens because that is near the end. Where there is none before it, one
// more is taken, for prompts that part a little earlier.
func near(n, at, last int) bool {
	left := n - at
	return (left == nearEnd || left == nearEnd+nearBefore && last == 0) && at-last >= nearBefore
}

// onTheWay takes states on the way to the end of a prompt.
type onTheWay struct {
	cells  *cells
	form   *form
	known  *known
	bytes  int64 // Options.CaptureBytes
	prompt kv.Prompt
}

// take takes the state of a sequence, whose last one is that after last tokens, if it is to be taken after n tokens. It returns
// after how many tokens the last state is now.
func (w *onTheWay) take(l *lineage, n, last int) (int, error) {
	total := len(w.prompt.Tokens)
	far := total-n >= farApart && n-last >= farApart
	if !w.form.stops() || !near(total, n, last) && !far || w.prompt.Clip(n) != n {
		return last, nil
	}
	if w.form.manyDims && len(w.prompt.Spans) > 0 { // not stored, as Save says
		return last, nil
	}
	part, err := w.state(l.sequence, n)
	if err != nil {
		return last, err
	}
	of := w.prompt.Prefix(n)
	of.Tokens, of.Spans, of.Adapters = slices.Clone(of.Tokens), slices.Clone(of.Spans), slices.Clone(of.Adapters)
	l.takes(checkpoint{of, part}, w.prompt)
	w.known.dropStates(l, w.bytes)
	return n, nil
}

// state is that of a sequence after n tokens, in memory of its own: of a hybrid its recurrent part.
func (w *onTheWay) state(sequence, n int) ([]byte, error) {
	defer w.cells.giveBack()
	if w.form.mode != Hybrid {
		blob, err := w.cells.get(sequence, 0)
		return bytes.Clone(blob), err
	}
	blob, err := w.cells.get(sequence, FlagPartial)
	if err != nil {
		return nil, err
	}
	part, err := state.Body(blob)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	return bytes.Clone(part), w.form.checkRecurrent(part, n)
}
