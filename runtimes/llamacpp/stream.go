package llamacpp

import (
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/piecesize"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// fill writes the rows of the positions [from, to) into a blob. Fewer tokens than the prefix has mean that some of it is damaged.
type fill func(rows kv.Rows, from, to int) (db.Restored, error)

// stream gives an empty sequence a prefix of n tokens, with so many rows of the window layers. llama.cpp replaces what a
// sequence holds, so a piece goes into a sequence that is empty and is then shared with the one that grows, which
// takes one buffer for all sequences, and one more sequence that nobody uses. Without these the whole state is one piece.
// A sequence that did not get all of it is empty afterwards.
func (s *Session) stream(sequence, n, windowRows int, fill fill) (got Restored, err error) {
	whole := s.lay.size(s.lay.cells(0, n, n, windowRows, sequence), true)
	step, scratch := n, sequence
	if whole > piecesize.Bytes {
		if free, ok := s.freeSequence(sequence); ok {
			pieces := (whole + piecesize.Bytes - 1) / piecesize.Bytes
			step, scratch = max(1, (n+pieces-1)/pieces), free
			if block := s.model.Descriptor().BlockTokens; step > block { // a block that lies in two pieces is read and checked twice
				step = (step + block/2) / block * block
			}
		}
	}
	defer func() {
		if err != nil {
			s.clear(sequence)
		}
	}()
	var bytes int64
	for from := 0; from < n; from += step {
		to, into := min(n, from+step), scratch
		if from == 0 { // the first piece can go where it belongs
			into = sequence
		}
		st, rows, blob := s.build(from, to, n, windowRows, into)
		part, err := fill(rows, from, to)
		if err != nil {
			return Restored{}, err
		}
		if part.Tokens == 0 {
			s.clear(sequence)
			return Restored{Reason: part.Reason}, nil
		}
		if part.Tokens < n { // the window rows of a shorter prefix lie elsewhere
			return Restored{}, shorter(part.Tokens)
		}
		if s.lay.recurrent != nil && to == n {
			if err := s.checkPart(blob[len(blob)-s.lay.recurrent.Size():], n); err != nil {
				return Restored{}, err
			}
		}
		if err := s.set(into, blob); err != nil {
			return Restored{}, err
		}
		if into != sequence {
			s.lib.SequenceCopy(s.memory, int32(into), int32(sequence), -1, -1)
			if !s.clear(into) {
				return Restored{}, fmt.Errorf("%w: llama.cpp does not remove sequence %d", ErrState, into)
			}
		}
		s.line(sequence).see(sketchesIn(s.lay.format, st))
		bytes += int64(len(blob))
		got.Reason = part.Reason
	}
	return s.installed(sequence, n, bytes, got.Reason)
}

// build lays out a blob of the positions [from, to) of a prefix of n tokens in memory of the session, and describes what is to be
// written into it. A hybrid's recurrent state comes with the last of them.
func (s *Session) build(from, to, n, windowRows, sequence int) (*state.State, kv.Rows, []byte) {
	cells := s.lay.cells(from, to, n, windowRows, sequence)
	size := s.lay.size(cells, to == n)
	buf := s.roomFor(size)
	st, blob := s.lay.format.Build(buf, int32(sequence), cells)
	rows := s.lay.rows(st)
	if s.lay.recurrent == nil {
		return st, rows, blob
	}
	part := buf[len(blob):size]
	if to < n {
		copy(part, s.lay.recurrent.Empty())
		return st, append(rows, kv.TensorRows{}), buf
	}
	return st, append(rows, kv.Packed(n, 1, part)), buf
}

// freeSequence finds a sequence beside this one that holds nothing and shares its cells.
func (s *Session) freeSequence(sequence int) (int, bool) {
	if s.lib.SequenceCopy == nil || !s.lay.oneBuffer() {
		return 0, false
	}
	empty := s.lay.size(make([]state.Cells, len(s.lay.format.Sections)), false)
	for i := int(s.lib.Sequences(s.lctx)) - 1; i >= 0; i-- {
		if i != sequence && s.tokens(i) == 0 && int(s.lib.StateSize(s.lctx, int32(i), 0)) == empty {
			return i, true
		}
	}
	return 0, false
}

// otherTokens is how many cells other sequences may occupy of the buffer that this one shares with them. Cells that several
// of them share count for each.
func (s *Session) otherTokens(sequence int) (n int) {
	for i := range int(s.lib.Sequences(s.lctx)) {
		if i != sequence {
			n += s.tokens(i)
		}
	}
	return n
}
