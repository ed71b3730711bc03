package llamacpp

import (
	"fmt"

	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/held"
)

// Runtime makes the context one that holds conversations. It works only if no sequence has tokens (ErrNotEmpty), and takes all
// sequences. Restore, Save, Prefill, Capture, Reset and Truncate of the session return ErrSequence from then on.
//
// A Runtime needs rows that can be cut (Mode is Rows), one cache for all sequences (kv_unified), and window layers that keep all cells
// (swa_full). It needs two sequences, or three of a model with windows. If something is missing, Limits().Missing says what, and all
// other methods return kv.ErrUnsupported.
//
// Runtime tries with rows of zeros whether llama.cpp does what is needed: of a model with windows, with as many as the context has cells.
func (s *Session) Runtime(o RuntimeOptions) (*Runtime, error) {
	if o.Decode == nil || o.Logits == nil {
		return nil, fmt.Errorf("%w: RuntimeOptions.Decode and Logits", ErrNeedDecode)
	}
	if s.runtime != nil {
		return nil, fmt.Errorf("%w: the context has a Runtime already", ErrSequence)
	}
	if err := s.attached.over(); err != nil {
		return nil, err
	}
	for i := range s.cells.sequences() {
		if n := s.cells.tokens(i); n > 0 {
			return nil, fmt.Errorf("%w: sequence %d has %d tokens", ErrNotEmpty, i, n)
		}
	}
	limits, err := limitsOf(s.cells, s.form, s.model.Descriptor())
	if err != nil {
		return nil, err
	}
	s.runtime = &Runtime{
		o: o, limits: limits, held: make([]held.Sequence, limits.Sequences), off: make([]*LineageError, limits.Sequences),
		attached: s.attached, cells: s.cells, form: s.form, identity: s.identity, files: s.files, model: s.model, put: s.o.Put,
	}
	s.cells.scratch = s.cells.sequences() - 1
	s.known.forgetAll()
	s.turns.endAll()
	return s.runtime, nil
}
