package llamacpp

import (
	"context"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/db"
)

// Session is a context attached to a store. Like the context, it is used by one goroutine at a time.
type Session struct {
	o     Options
	model *db.Model // in the store

	attached attachment
	files    *files // that the context's model was loaded from; nil: not known
	cells    *cells
	form     *form
	known    *known
	deferred *deferred
	identity *identity
	turns    *turns
	runtime  *Runtime // to which all sequences belong; nil: there is none
}

// Mode says how states are kept.
func (s *Session) Mode() Mode { return s.form.mode }

// Why says why the mode is what it is.
func (s *Session) Why() string { return s.form.why }

// Model is the context's model in the store.
func (s *Session) Model() *db.Model { return s.model }

// Deviation is how far the context's rows were from the stored ones when they were last compared, in multiples of what numerics
// explain. Above 1 the context is refused. It is 0 if there was nothing to compare with.
func (s *Session) Deviation() float64 { return s.identity.deviation }

// Trim gives back the memory that the session keeps between calls: as much as the largest state that it moved, and captured window
// rows that were not saved yet, whose positions are then not restorable. It also gives back what all sessions of the process keep for
// the next restore.
func (s *Session) Trim() {
	s.cells.trim()
	s.known.trim()
}

// Reset tells the session that the caller has emptied a sequence and filled it again without the session: by a decode loop of his own,
// llama_memory_seq_cp or llama_state_seq_set_data. The next Save takes his word for what is in it.
//
// Reset is not for sequences whose positions were shifted: their rows must never be saved. Call it after the sequence was filled.
// llama.cpp copies rows late, and Save stores a copy that is still due only if the sequence has the positions that it had at Reset.
//
// Restore, and Prefill from position 0, need no Reset.
func (s *Session) Reset(sequence int) error {
	if err := s.check(sequence); err != nil {
		return err
	}
	s.known.begin(sequence, &lineage{trusted: true, unsettled: true, told: s.cells.tokens(sequence)})
	s.turns.ends(sequence)
	return nil
}

// Truncate tells the session that the caller has removed the positions from n on (llama_memory_seq_rm) and evaluates others there
// without the session. Prefill from position n needs no Truncate.
//
// In a sliding-window model call it whenever you removed positions, whatever you evaluate there, the same tokens, too. Call it before
// you evaluate. ErrLineage says that the rows of the window before n are not there any more, or were not restored. Save then refuses
// what is evaluated there, and without this call it may not see the fault.
func (s *Session) Truncate(sequence, n int) error {
	if err := s.check(sequence); err != nil {
		return err
	}
	l := s.known.line(sequence)
	l.told = min(l.told, max(n, 0))
	return s.known.back(l, max(n, 0))
}

// Observe ends a turn of a sequence and tells the store of it ([db.Model.Observe]): what Restore and Prefill did there since the turn
// before, and how many tokens the caller decoded behind that, in how much time.
//
// Without Observe a turn ends with the next Restore, Reset, or Prefill from where the one before it did not end. Tokens in between
// count as decoded, in no time. Restored tokens count as not reused if neither Prefill nor Observe says that tokens were computed
// behind them.
func (s *Session) Observe(sequence, decoded int, took time.Duration) {
	s.turns.observe(sequence, decoded, took)
}

// BatchTokens is how many tokens Prefill evaluates at a time.
func (s *Session) BatchTokens() int {
	n := int(s.cells.lib.Batch(s.cells.lctx))
	if s.form.mode == Rows && s.form.lay.Window > 0 {
		c := s.o.CaptureTokens
		if c <= 0 {
			c = min(int(s.cells.lib.MicroBatch(s.cells.lctx)), s.form.lay.Window+1)
		}
		n = min(n, c)
	}
	return max(1, n)
}

// begin is check of a call that reads or writes rows: the context must still run the model that it ran.
func (s *Session) begin(ctx context.Context, sequence int) error {
	if ctx == nil {
		return errNoContext
	}
	if err := s.check(sequence); err != nil {
		return err
	}
	return s.unchanged(ctx)
}

// check refuses a session that another one has replaced, and a sequence that llama.cpp would abort for, or that belongs to a Runtime.
func (s *Session) check(sequence int) error {
	if err := s.attached.over(); err != nil {
		return err
	}
	if s.runtime != nil {
		return fmt.Errorf("%w: %d belongs to the session's Runtime", ErrSequence, sequence)
	}
	return s.cells.has(sequence)
}

// unchanged refuses a context whose model's files are not what they were.
func (s *Session) unchanged(ctx context.Context) error {
	if s.runtime != nil {
		return s.runtime.unchanged(ctx)
	}
	doubt, err := s.files.unchanged(ctx)
	if doubt != "" {
		s.known.doubtAll(doubt)
	}
	return err
}
