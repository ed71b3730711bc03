package llamacpp

import (
	"bytes"
	"context"
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// A hybrid has attention layers, whose rows can be cut at any token, and recurrent ones, whose state is that after one token. The
// rows are the All group; the recurrent part of a blob, as it is, is the state of a StateAt group, the last tensor of the descriptor.

// hybridBecause sets the layout and fills in the descriptor if blobs of a hybrid's context are understood to be rows of tokens and
// a recurrent part behind them; else it says why not. blob may be that of any token at any position, and tail is what can be had of it alone.
func (s *Session) hybridBecause(model uintptr, d *kv.Descriptor, blob, tail []byte) string {
	switch {
	case s.lib.Version == nil:
		return "the release, to which a recurrent state is tied, is not known"
	case s.lib.Window(model) > 0:
		return "its attention has windows"
	}
	part, err := state.Body(tail)
	if err != nil {
		return err.Error()
	}
	recurrent, err := state.LearnRecurrent(part)
	if err != nil {
		return fmt.Sprintf("the layout of the recurrent part is not known: %v", err)
	}
	if !bytes.HasSuffix(blob, part) {
		return "the recurrent part is not the end of the state"
	}
	f, err := state.Learn(blob[:len(blob)-len(part)], 1)
	switch {
	case err != nil:
		return fmt.Sprintf("the layout of the attention part is not known: %v", err)
	case f.ExtBytes != 0:
		return fmt.Sprintf("cells carry %d bytes besides their position", f.ExtBytes)
	case len(f.Sections[0].Layers) == 0 || len(f.Sections[0].Layers) > int(s.lib.Layers(model)):
		return fmt.Sprintf("the state has %d layers of attention, the model %d layers", len(f.Sections[0].Layers), s.lib.Layers(model))
	}
	lay, err := newLayout(d, f, 0)
	if err != nil {
		return err.Error()
	}
	lay.recurrent = &recurrent
	d.Groups = append(d.Groups, kv.Group{Kind: kv.StateAt})
	d.Tensors = append(d.Tensors, kv.Tensor{Layer: len(f.Sections[0].Layers), Role: kv.RoleState, DType: kv.Bytes, Group: 1})
	s.lay = lay
	return ""
}

// recurrentFormat is what ties a stored recurrent part to a context: the release and the layout.
func (s *Session) recurrentFormat() string {
	return fmt.Sprintf("llama.cpp %s recurrent %s", s.lib.Version(), s.lay.recurrent)
}

// recurrentPart is the recurrent part of the sequence's state, in memory of its own.
func (s *Session) recurrentPart(sequence int) ([]byte, error) {
	blob, err := s.get(sequence, FlagPartial)
	if err != nil {
		return nil, err
	}
	part, err := state.Body(blob)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	return bytes.Clone(part), nil
}

// checkPart refuses a recurrent part that is not that after n tokens.
func (s *Session) checkPart(part []byte, n int) error {
	pos, err := s.lay.recurrent.Parse(part)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	if pos+1 != n {
		return fmt.Errorf("%w: the recurrent state is that after %d tokens, not %d", ErrPositions, pos+1, n)
	}
	return nil
}

// saveHybrid stores the rows of a sequence of n tokens, the state after them, and those that Prefill took on the way.
func (s *Session) saveHybrid(ctx context.Context, l *lineage, prompt kv.Prompt, sequence, n int) (db.PutResult, error) {
	if err := s.endsAt(prompt, sequence, n); err != nil {
		return db.PutResult{}, err
	}
	if l.shrunk {
		if err := l.seen(sequence); err != nil {
			return db.PutResult{}, err
		}
	}
	if err := s.settled(l, n, sequence); err != nil {
		return db.PutResult{}, err
	}
	defer s.giveBack()
	blob, err := s.get(sequence, 0)
	if err != nil {
		return db.PutResult{}, err
	}
	size := s.lay.recurrent.Size()
	if len(blob) < size {
		return db.PutResult{}, fmt.Errorf("%w: %d bytes, the recurrent part alone has %d", ErrState, len(blob), size)
	}
	part := blob[len(blob)-size:]
	if err := s.checkPart(part, n); err != nil {
		return db.PutResult{}, err
	}
	st, err := s.lay.format.Parse(blob[:len(blob)-size])
	if err != nil {
		return db.PutResult{}, fmt.Errorf("%w: %w", ErrState, err)
	}
	if first, end, whole := st.Sections[baseSection].Range(); first > 0 || !whole || end != n {
		return db.PutResult{}, fmt.Errorf("%w: of the positions [0, %d), sequence %d has %d, the last of them %d", ErrPositions, n, sequence, st.Sections[baseSection].Count(), end-1)
	}
	if err := s.inOrder(l, &st.Sections[baseSection], n, sequence); err != nil {
		return db.PutResult{}, err
	}
	first, sketches := sketchesIn(s.lay.format, st)
	if err := l.same(first, sketches, n, sequence); err != nil {
		return db.PutResult{}, err
	}
	rows := s.lay.rows(st)
	result, err := s.putStates(ctx, l, prompt.Prefix(n), part, func(part []byte, n int) kv.Rows {
		return append(rows[:len(rows):len(rows)], kv.Packed(n, 1, part))
	})
	if err == nil {
		l.rests(prompt.Prefix(n))
		l.see(first, sketches)
	}
	return result, err
}
