package llamacpp

import (
	"fmt"

	"github.com/dormousekv/dormouse/runtimes/internal/portrait"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/sample"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// Mode is how a context's states are kept.
type Mode int

const (
	// Rows: cut into rows, restorable up to any token.
	Rows Mode = iota + 1
	// Opaque: whole blobs, restorable at exactly the positions where Save took them, and Prefill shortly before the end.
	Opaque
	// Hybrid: the attention layers as rows, the recurrent layers as states. Restorable where there is a state, as Opaque.
	Hybrid
)

func (m Mode) String() string {
	switch m {
	case Rows:
		return "rows"
	case Opaque:
		return "opaque"
	case Hybrid:
		return "hybrid"
	}
	return fmt.Sprintf("mode(%d)", int(m))
}

// form is how states of a context are made, and so how they are kept. Attach finds it out (learn), and it stays.
type form struct {
	mode Mode
	why  string
	lay  *layout.Layout // of Rows and Hybrid
	tail bool           // of Rows: the window section can be had alone

	// These are known of an Opaque model, too. window is how many rows window layers look back, besides the token itself. It is 0
	// without such layers, and beside recurrent layers, because those cannot go back.
	window   int
	recurs   bool // some layers keep a state that never forgets, in place of rows
	manyDims bool // a position is more than one number: tokens are not counted by it

	format state.Format // of a state; without sections: not understood
	rest   int          // bytes of a state behind what format describes: the recurrent part of a hybrid
	shape  string
}

// stops reports whether a state is good at one position only.
func (f *form) stops() bool { return f.mode == Opaque || f.mode == Hybrid }

// captures reports whether the model has window rows that are copied on the way.
func (f *form) captures() bool { return f.mode == Rows && f.lay.Window > 0 }

// cut is the layout of states that are rows alone; nil of others.
func (f *form) cut() *layout.Layout {
	if f.mode != Rows {
		return nil
	}
	return f.lay
}

// portrait is that of a state of the canary.
func (f *form) portrait(blob []byte) portrait.Portrait {
	rest := min(f.rest, len(blob))
	return portrait.Of(f.format, blob[:len(blob)-rest], blob[len(blob)-rest:])
}

// parse takes apart the rows of a state.
func (f *form) parse(blob []byte) (*state.State, error) {
	st, err := f.lay.Format.Parse(blob)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	return st, nil
}

// checkRecurrent refuses a recurrent part that is not that after n tokens.
func (f *form) checkRecurrent(part []byte, n int) error {
	pos, err := f.lay.Recurrent.Parse(part)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	if pos+1 != n {
		return fmt.Errorf("%w: the recurrent state is that after %d tokens, not %d", ErrPositions, pos+1, n)
	}
	return nil
}

// sketches are those of a state that is not cut, where its layout is known and it has what they are for: windows.
func (f *form) sketches(blob []byte) (first int, out []sample.Sketch) {
	if f.window == 0 || len(f.format.Sections) == 0 {
		return 0, nil
	}
	st, err := f.format.Parse(blob)
	if err != nil {
		return 0, nil
	}
	return sample.Of(f.format, st)
}

// errNotParsed says that a state is not made as those of the context are.
var errNotParsed = fmt.Errorf("%w: not understood", ErrState)

// digests are those of a state, of the positions below n. It has sections, or else all of it is one digest.
func (f *form) digests(blob []byte, n int) ([]sample.Digest, error) {
	if len(f.format.Sections) == 0 {
		return sample.Whole(blob), nil
	}
	if len(blob) < f.rest {
		return nil, fmt.Errorf("%w: %d bytes, the recurrent part alone has %d", ErrState, len(blob), f.rest)
	}
	st, err := f.format.Parse(blob[:len(blob)-f.rest])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotParsed, err)
	}
	return sample.Digests(f.format, st, n)
}
