package llamacpp

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
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
	// keepStates is how many states stay stored on the way of a prompt, unless Options.Put says otherwise: the first, and the last
	// ones. In a chat these are the one after its first part, the end of the turn before, the one near the end of the last
	// prompt, and the end.
	keepStates = 4
)

// checkpoint is a state on the way of a prompt, in memory of its own.
type checkpoint struct {
	prompt kv.Prompt // up to it
	state  []byte
}

// of reports whether it is the state after the first tokens of that prompt.
func (c checkpoint) of(p kv.Prompt) bool {
	n := len(c.prompt.Tokens)
	return n <= len(p.Tokens) && parting(c.prompt, p, n) < 0
}

// stops reports whether the states of the model are good at one position only.
func (s *Session) stops() bool { return s.mode == Opaque || s.mode == Hybrid }

// batchEnd is where a batch of Prefill that begins at from ends: at a multiple of the batch, or where a state is to be taken. last is
// after how many tokens the last one was.
func (s *Session) batchEnd(prompt kv.Prompt, from, batch, last int) int {
	n := len(prompt.Tokens)
	end := min(n, (from/batch+1)*batch)
	for at := from + 1; at < end; at++ {
		if near(n, at, last) && s.stops() && prompt.Clip(at) == at {
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

// checkpoint takes the state of a sequence, whose last state is that after so many tokens, on the way to the end of prompt, if it is
// to be taken after n tokens. It returns after how many tokens the last state is now.
func (s *Session) checkpoint(l *lineage, prompt kv.Prompt, n, last, sequence int) (int, error) {
	left := len(prompt.Tokens) - n
	far := left >= farApart && n-last >= farApart
	if !s.stops() || !near(len(prompt.Tokens), n, last) && !far || prompt.Clip(n) != n {
		return last, nil
	}
	if s.manyDims && len(prompt.Spans) > 0 { // not stored, as Save says
		return last, nil
	}
	defer s.giveBack()
	var part []byte
	var err error
	if s.mode == Hybrid {
		if part, err = s.recurrentPart(sequence); err == nil {
			err = s.checkPart(part, n)
		}
	} else if part, err = s.get(sequence, 0); err == nil {
		part = bytes.Clone(part)
	}
	if err != nil {
		return last, err
	}
	list := slices.DeleteFunc(l.states, func(c checkpoint) bool { return !c.of(prompt) })
	of := prompt.Prefix(n)
	of.Tokens, of.Spans, of.Adapters = slices.Clone(of.Tokens), slices.Clone(of.Spans), slices.Clone(of.Adapters)
	list = append(list, checkpoint{of, part})
	if len(list) == keepStates { // one more comes with Save
		list = append(list[:1], list[2:]...)
	}
	l.states = list
	for s.capturedBytes() > s.o.CaptureBytes {
		most := l
		for _, other := range s.lines {
			if total(other.states) > total(most.states) {
				most = other
			}
		}
		if len(most.states) == 0 {
			break
		}
		most.states = most.states[1:]
	}
	return n, nil
}

func total(list []checkpoint) (bytes int64) {
	for _, c := range list {
		bytes += int64(len(c.state))
	}
	return bytes
}

// putStates stores a prompt with the state after its last token, and before that the states that Prefill took on its way. rowsWith are
// the rows of the sequence with a state after n tokens.
func (s *Session) putStates(ctx context.Context, l *lineage, prompt kv.Prompt, last []byte, rowsWith func(part []byte, n int) kv.Rows) (db.PutResult, error) {
	o := s.o.Put
	if o.KeepStates == 0 {
		o.KeepStates = keepStates
	}
	var sum db.PutResult
	put := func(part []byte, n int) error {
		r, err := s.model.Put(ctx, prompt.Prefix(n), rowsWith(part, n), o)
		sum.Tokens, sum.Reused = r.Tokens, r.Reused
		sum.Blocks += r.Blocks
		sum.Records += r.Records
		sum.Bytes += r.Bytes
		return err
	}
	for _, c := range l.states {
		if n := len(c.prompt.Tokens); n < len(prompt.Tokens) && c.of(prompt) {
			if err := put(c.state, n); err != nil {
				return sum, err
			}
		}
	}
	l.states = nil
	return sum, put(last, len(prompt.Tokens))
}

// endsAt refuses a prompt of which a state after n tokens is none.
func (s *Session) endsAt(prompt kv.Prompt, sequence, n int) error {
	if n > len(prompt.Tokens) || prompt.Clip(n) != n {
		return fmt.Errorf("%w: the state of sequence %d is that after %d tokens, where no prefix of the prompt of %d tokens ends",
			ErrPositions, sequence, n, len(prompt.Tokens))
	}
	return nil
}
