package llamacpp

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/canary"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/sample"
)

// deferred is the work that llama.cpp puts off until the next llama_decode, which does it before it looks for room.
// llama_memory_seq_cp into another stream copies the rows then, and llama_memory_seq_add and llama_memory_seq_div rotate the
// keys. Positions change at once. Until the decode a state has the new positions and the old rows, and what is written into
// a sequence is overwritten afterwards. Nothing tells that work was put off. So it is done before rows are read that the
// session did not see come, and before a stream is written.
type deferred struct {
	cells  *cells
	form   *form
	known  *known
	decode DecodeFunc // Options.Decode, which may be nil
}

// evaluate evaluates tokens. What was put off is done then.
func (d *deferred) evaluate(tokens []kv.Token, first, sequence int) error {
	err := d.decode(tokens, first, sequence)
	if err == nil || errors.Is(err, kv.ErrFull) {
		d.known.evaluated()
	}
	return err
}

// streams reports whether sequences may have cells of their own, between which rows are copied late.
func (d *deferred) streams() bool {
	if d.cells.sequences() <= 1 || d.cells.recurrent() { // a recurrent state is copied in no other way than rows of one buffer
		return false
	}
	for _, section := range d.form.format.Sections {
		if section.Streams != 1 {
			return true
		}
	}
	return len(d.form.format.Sections) == 0
}

// ownCells reports whether a sequence shares its cells with no other.
func (d *deferred) ownCells() bool { return d.cells.sequences() == 1 || d.streams() }

// possible reports whether anything can be put off in this context.
func (d *deferred) possible() bool {
	lib := d.cells.lib
	shifts := lib.CanShift == nil || lib.CanShift(d.cells.memory)
	return d.streams() || shifts && !d.cells.recurrent()
}

// settled looks at what was put off in a sequence, if there are rows among the first n that the session did not see come, or
// positions went and nobody said so.
func (d *deferred) settled(l *lineage, n int) error {
	known := len(l.prompt.Tokens)
	if l.moved {
		known = 0
	}
	if n <= known {
		return nil
	}
	err := d.look(l, known)
	if err == nil && l.off != nil && n > l.off.From {
		err = l.off
	}
	return err
}

// look has llama.cpp do what it has put off, and finds out whether that changed a sequence's rows from position known on. Then
// positions were shifted, or the sequence is a copy of another one that the session was not told of: neither is stored. A
// copy is taken if Reset said so. But one decode makes the copy and rotates its keys. All rows are others then, so they do
// not tell whether the copy was shifted, too. The number of positions tells it: a shift leaves fewer than there were at Reset.
func (d *deferred) look(l *lineage, known int) error {
	n := d.cells.tokens(l.sequence)
	if !d.possible() || d.cells.sequences() == 1 && n >= d.cells.room() { // a shift leaves cells free
		return nil
	}
	before, err := d.digests(l.sequence, known, n)
	if errors.Is(err, errNotParsed) { // cells that two sequences share were shifted for both
		l.off = l.contradiction(0, err.Error())
		return l.off
	}
	if err != nil {
		return err
	}
	return d.settle(l.sequence, func() error {
		after, err := d.digests(l.sequence, known, n)
		if err != nil {
			return err
		}
		at, copied := sample.Changed(before, after, n)
		if at == n || copied && l.trusted && n == l.told {
			return nil
		}
		why := "positions were shifted, and llama.cpp had not rotated their keys yet"
		switch {
		case copied && l.trusted:
			why = fmt.Sprintf("it is a copy of another sequence (llama_memory_seq_cp) and has %d positions, %d when Reset told of it: they were shifted, perhaps. If you shifted none, call Reset", n, l.told)
		case copied:
			why = "it was copied from another sequence (llama_memory_seq_cp), of which the session was not told: if you filled it yourself, and shifted no positions, call Reset"
		}
		if l.off == nil || at < l.off.From {
			l.off = l.contradiction(at, why)
		}
		return l.off
	})
}

// digests are those of the positions [from, n) of a sequence.
func (d *deferred) digests(sequence, from, n int) ([]sample.Digest, error) {
	blob, err := d.cells.getFrom(sequence, from, d.form.cut())
	if err != nil {
		return nil, err
	}
	defer d.cells.giveBack()
	if len(d.form.format.Sections) == 0 && d.cells.tokens(sequence) > n {
		return nil, fmt.Errorf("%w: the layout of a state is not known, and no sequence is empty: whether llama.cpp has put off a copy or a shift of sequence %d is not known, either", ErrRefused, sequence)
	}
	return d.form.digests(blob, n)
}

// settle has llama.cpp do what it has put off: it evaluates a token in an empty sequence and removes it again. If no sequence
// is empty, that is done behind the end of the given one. then, which may be nil, is called in between. The logits of the last
// decode stay where the program looks for them, if it asked for one token's.
func (d *deferred) settle(sequence int, then func() error) (err error) {
	if !d.possible() {
		return nil
	}
	if d.decode == nil {
		return fmt.Errorf("%w: one token is evaluated, to have llama.cpp do what it has put off", ErrNeedDecode)
	}
	c := d.cells
	into, at := sequence, c.tokens(sequence)
	for i := 0; i < c.sequences() && at > 0; i++ {
		if c.tokens(i) == 0 {
			into, at = i, 0
		}
	}
	var recurrent []byte
	switch {
	case at == 0:
		c.clear(into) // as Prefill from position 0 does
	case d.form.recurs: // it cannot go back by a token, but alone it can be put back
		if recurrent, err = c.get(into, FlagPartial); err != nil {
			return err
		}
		recurrent = bytes.Clone(recurrent)
	}
	back := c.keepLogits()
	err = d.evaluate([]kv.Token{c.ordinaryTokens(canary.Length)[0]}, at, into)
	back()
	switch {
	case errors.Is(err, kv.ErrFull): // it was done, and there was no room for the token
		err = nil
	case err != nil:
		err = fmt.Errorf("llamacpp: evaluate a token, to have llama.cpp do what it has put off: %w", err)
	}
	if err == nil && then != nil {
		err = then()
	}
	if at == 0 {
		c.clear(into)
		return err
	}
	if recurrent != nil {
		if n := c.setPart(into, recurrent, FlagPartial); n != len(recurrent) {
			return errors.Join(err, fmt.Errorf("%w: llama.cpp took %d of %d bytes of a recurrent state into sequence %d", ErrState, n, len(recurrent), into))
		}
	}
	if !c.remove(into, at, -1) || c.tokens(into) != at {
		err = errors.Join(err, fmt.Errorf("%w: llama.cpp does not take back a token of sequence %d", ErrState, into))
	}
	return err
}

// keepLogits returns a function that puts the logits back that are the first ones now: those of the last decode, if that was
// asked for the logits of one token.
func (c *cells) keepLogits() func() {
	n := c.lib.vocabulary(c.model())
	if c.lib.Logits == nil || n <= 0 {
		return func() {}
	}
	was := c.lib.Logits(c.lctx)
	if was == nil {
		return func() {}
	}
	kept := bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(was)), 4*n))
	return func() {
		if now := c.lib.Logits(c.lctx); now != nil {
			copy(unsafe.Slice((*byte)(unsafe.Pointer(now)), 4*n), kept)
		}
	}
}
