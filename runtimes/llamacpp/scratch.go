package llamacpp

import (
	"bytes"
	"errors"
	"fmt"
)

// in calls f with a sequence that is empty, and empties it afterwards: the given one, or another. If no sequence is empty, or the tokens
// of others leave no room for a canary, one sequence's are taken out meanwhile, and put back as they were: the given one's, or those of the
// longest.
func (s *Session) in(sequence int, f func(sequence int) error) (err error) {
	defer s.giveBack()
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
