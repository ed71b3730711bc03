package llamacpp

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/canary"
)

// errNotEvaluated says that the caller's Decode failed for the canary.
var errNotEvaluated = errors.New("llamacpp: what the model is known by was not evaluated")

// borrow calls f with a sequence that is empty, and empties it afterwards: the given one, or another. If no sequence is empty, or the
// tokens of others leave no room for a canary, one sequence's are taken out meanwhile, and put back as they were: the given
// one's, or those of the longest.
func (d *deferred) borrow(sequence int, f func(sequence int) error) (err error) {
	c := d.cells
	defer c.giveBack()
	if c.scratch >= 0 { // a Runtime has an empty one, and the others may share cells
		defer c.clear(c.scratch)
		return f(c.scratch)
	}
	n := c.sequences()
	free, all, longest := -1, 0, sequence
	for i := range n {
		i = (i + sequence) % n
		have := max(0, c.tokens(i))
		if have == 0 && free < 0 {
			free = i
		}
		if all += have; have > c.tokens(longest) {
			longest = i
		}
	}
	if c.recurrent() {
		all = 0 // a sequence is one cell
	}
	if free >= 0 {
		c.clear(free) // as Prefill from position 0 does
	}
	if free >= 0 && all+canary.Length <= c.count() { // streams of their own have room for it anyway, and shared cells are counted for each
		defer c.clear(free)
		return f(free)
	}
	if all > c.count() { // sequences share cells
		if free >= 0 { // perhaps so many that there is room
			defer c.clear(free)
			err = f(free)
			if !errors.Is(err, errNotEvaluated) {
				return err
			}
		}
		return errors.Join(fmt.Errorf("%w: sequences share cells (llama_memory_seq_cp), and there may be no room to put back what one of them holds: empty one, "+
			"or make the context with one sequence or %d cells more", ErrRefused, canary.Length), err)
	}
	if all-c.tokens(sequence)+canary.Length > c.count() {
		sequence = longest
	}
	return d.takeOut(sequence, f)
}

// takeOut calls f with a sequence whose tokens it takes out meanwhile.
func (d *deferred) takeOut(sequence int, f func(sequence int) error) (err error) {
	if err := d.settleHeld(sequence); err != nil {
		return err
	}
	held, err := d.cells.get(sequence, 0)
	if err != nil {
		return err
	}
	held = bytes.Clone(held)
	if !d.cells.clear(sequence) {
		return fmt.Errorf("%w: llama.cpp does not remove sequence %d", ErrRefused, sequence)
	}
	defer func() { err = errors.Join(err, d.putBack(sequence, held)) }()
	return f(sequence)
}

// putBack gives a sequence what it held.
func (d *deferred) putBack(sequence int, held []byte) error {
	d.cells.clear(sequence)
	if err := d.cells.set(sequence, held); err != nil {
		return err
	}
	again, err := d.cells.get(sequence, 0)
	if err == nil && !bytes.Equal(held, again) {
		d.cells.clear(sequence)
		err = fmt.Errorf("%w: the tokens of sequence %d could not be put back as they were, and it is empty now: attach before anything is evaluated, "+
			"or make the context with one sequence more", ErrState, sequence)
	}
	return err
}

// settleHeld has done what was put off in a sequence that is about to be taken out.
func (d *deferred) settleHeld(sequence int) error {
	if len(d.form.format.Sections) == 0 { // the first Attach to learn it: whether there are streams is seen here
		blob, err := d.cells.get(sequence, 0)
		if err != nil {
			return err
		}
		blob = bytes.Clone(blob)
		var tail []byte
		if d.form.recurs {
			if tail, err = d.cells.get(sequence, FlagPartial); err != nil {
				return err
			}
		}
		d.form.know(blob, tail)
	}
	return d.settle(sequence, nil)
}
