package llamacpp

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/largemem"
)

// check refuses a sequence that llama.cpp would abort for, or that belongs to a Runtime, and a session that another one has replaced.
func (s *Session) check(sequence int) error {
	if err := s.over(); err != nil {
		return err
	}
	return s.has(sequence)
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

func (s *Session) has(sequence int) error {
	if s.runtime != nil {
		return fmt.Errorf("%w: %d belongs to the session's Runtime", ErrSequence, sequence)
	}
	if n := s.lib.Sequences(s.lctx); sequence < 0 || sequence >= int(n) {
		return fmt.Errorf("%w: %d of %d", ErrSequence, sequence, n)
	}
	return nil
}

// keptReadBytes is the largest state whose memory waits for the next save, until Trim: new memory takes longer than the copy into it.
const keptReadBytes = 64 << 20

// get returns the sequence's state, which the next call overwrites. The caller calls giveBack when it is done with it.
func (s *Session) get(sequence int, flags uint32) ([]byte, error) {
	s.lib.Synchronize(s.lctx)
	size := int(s.lib.StateSize(s.lctx, int32(sequence), flags))
	if size <= 0 {
		return nil, fmt.Errorf("%w: llama.cpp gives no size for sequence %d", ErrState, sequence)
	}
	var b []byte
	if size <= keptReadBytes {
		b = s.memoryFor(size)
	} else {
		b = s.roomFor(size)
	}
	if n := s.lib.StateGet(s.lctx, &b[0], uintptr(size), int32(sequence), flags); int(n) != size {
		return nil, fmt.Errorf("%w: llama.cpp wrote %d bytes for sequence %d, announced were %d", ErrState, n, sequence, size)
	}
	return b, nil
}

// memoryFor returns n bytes of s.buf. Their contents are whatever was there.
func (s *Session) memoryFor(n int) []byte {
	if cap(s.buf) < n {
		s.buf = make([]byte, n)
	}
	return s.buf[:n]
}

// keptBytes is the largest memory that a call leaves to the next one.
const keptBytes = 8 << 20

// roomFor returns n bytes for a state, until giveBack. Their contents are whatever was there.
func (s *Session) roomFor(n int) []byte {
	if n <= keptBytes {
		return s.memoryFor(n)
	}
	if cap(s.large) < n {
		s.giveBack()
		s.large = largemem.Make(n)
	}
	return s.large[:n]
}

// giveBack ends what roomFor returned, if it is more than the session keeps: it waits for the next session that needs as much, or goes back to the system.
func (s *Session) giveBack() {
	if s.large != nil {
		largemem.Free(s.large)
		s.large = nil
	}
}

// Trim gives back the memory that the session keeps between calls: as much as the largest state that it moved, and captured
// window rows that were not saved yet, whose positions are then not restorable. So it does with what all sessions of the process keep for the next restore.
func (s *Session) Trim() {
	s.buf = nil
	largemem.Trim()
	for _, l := range s.lines {
		l.captured, l.states = captured{}, nil
	}
}

// errNotTaken says that llama.cpp did not take a state: there may be no room for it.
var errNotTaken = fmt.Errorf("%w: not taken", ErrState)

// set gives an empty sequence a state. If llama.cpp does not take all of it, the sequence is empty afterwards.
func (s *Session) set(sequence int, blob []byte) error {
	s.lib.Synchronize(s.lctx)
	n := s.lib.StateSet(s.lctx, &blob[0], uintptr(len(blob)), int32(sequence), 0)
	if int(n) != len(blob) {
		s.clear(sequence) // half of it may be there
		return fmt.Errorf("%w: llama.cpp took %d of %d bytes into sequence %d", errNotTaken, n, len(blob), sequence)
	}
	return nil
}

// clear empties a sequence.
func (s *Session) clear(sequence int) bool {
	return s.lib.SequenceRemove(s.memory, int32(sequence), -1, -1)
}

// tokens is how many positions the sequence has: one more than its last.
func (s *Session) tokens(sequence int) int {
	return int(s.lib.SequenceMax(s.memory, int32(sequence))) + 1
}

// in calls f with a sequence that is empty, and empties it afterwards: the given one, or another. If no sequence is empty, or the tokens
// of others leave no room for a canary, one sequence's are taken out meanwhile, and put back as they were: the given one's, or those of the
// longest.
func (s *Session) in(sequence int, f func(sequence int) error) (err error) {
	defer s.giveBack()
	if s.runtime != nil { // it has an empty one, and the others may share cells
		defer s.clear(s.runtime.scratch)
		return f(s.runtime.scratch)
	}
	n := int(s.lib.Sequences(s.lctx))
	free, all, longest := -1, 0, sequence
	for i := range n {
		i = (i + sequence) % n
		have := max(0, s.tokens(i))
		if have == 0 && free < 0 {
			free = i
		}
		if all += have; have > s.tokens(longest) {
			longest = i
		}
	}
	cells := int(s.lib.ContextTokens(s.lctx))
	if s.lib.IsRecurrent(s.lib.GetModel(s.lctx)) {
		all = 0 // a sequence is one cell
	}
	if free >= 0 {
		s.clear(free) // as Prefill from position 0 does
	}
	if free >= 0 && all+canaryLength <= cells { // streams of their own have room for it anyway, and shared cells are counted for each
		defer s.clear(free)
		return f(free)
	}
	if all > cells { // sequences share cells
		if free >= 0 { // perhaps so many that there is room
			defer s.clear(free)
			err = f(free)
			if !errors.Is(err, errNotEvaluated) {
				return err
			}
		}
		return errors.Join(fmt.Errorf("%w: sequences share cells (llama_memory_seq_cp), and there may be no room to put back what one of them holds: empty one, "+
			"or make the context with one sequence or %d cells more", ErrRefused, canaryLength), err)
	}
	if all-s.tokens(sequence)+canaryLength > cells {
		sequence = longest
	}
	if err := s.settleHeld(sequence); err != nil {
		return err
	}
	held, err := s.get(sequence, 0)
	if err != nil {
		return err
	}
	held = bytes.Clone(held)
	if !s.clear(sequence) {
		return fmt.Errorf("%w: llama.cpp does not remove sequence %d", ErrRefused, sequence)
	}
	defer func() {
		s.clear(sequence)
		perr := s.set(sequence, held)
		if perr == nil {
			var again []byte
			if again, perr = s.get(sequence, 0); perr == nil && !bytes.Equal(held, again) {
				s.clear(sequence)
				perr = fmt.Errorf("%w: the tokens of sequence %d could not be put back as they were, and it is empty now: attach before anything is evaluated, "+
					"or make the context with one sequence more", ErrState, sequence)
			}
		}
		err = errors.Join(err, perr)
	}()
	return f(sequence)
}
