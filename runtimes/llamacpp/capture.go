package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// captured is window rows of a sequence, copied out of the cache while they were in it.
type captured struct {
	stretches []stretch // in order, with gaps in between
	bytes     int64
	unsaved   bool
}

// stretch is the window rows of the positions [first, end).
type stretch struct {
	first, end int
	pieces     [][]kv.Piece // by window tensor
}

// Capture copies the window layers' rows of a sliding-window model out of the cache, for [Session.Save]: the cache forgets
// them. prompt is what the sequence holds. A program with a loop of its own around llama_decode calls it after every
// batch of at most [Session.BatchTokens] tokens; Prefill does. Of an Opaque model it notes what the sequence holds, without which Save
// refuses it; for others it does nothing. A prompt that contradicts what
// the session knows of the sequence is refused with ErrLineage. When all sequences together hold more than Options.CaptureBytes, what the one that holds
// most has is saved, in the scope of its last Capture, or, if the store does not take it, dropped: its positions are not restorable. If it is this one, the
// error is Save's. So say here, and to Prefill, whose the prompt is (Scope, ScopeStart): to say it to Save alone comes too late for what was saved before.
func (s *Session) Capture(ctx context.Context, prompt kv.Prompt, sequence int) error {
	if err := s.begin(ctx, sequence); err != nil {
		return err
	}
	prompt = ordered(prompt)
	if err := prompt.Validate(); err != nil {
		return err
	}
	l := s.line(sequence)
	if err := l.agrees(prompt, len(prompt.Tokens), sequence); err != nil {
		return err
	}
	if err := l.refuses(len(prompt.Tokens)); err != nil {
		return err
	}
	if err := s.identified(prompt); err != nil {
		return err
	}
	if n := len(l.prompt.Tokens); s.streams() && s.captures() && (l.unsettled || n == 0 || len(prompt.Tokens)-n > s.BatchTokens()) {
		if err := s.settled(l, len(prompt.Tokens), sequence); err != nil {
			return err
		}
	}
	if s.mode == Opaque && s.tokens(sequence) == len(prompt.Tokens) {
		if len(l.prompt.Tokens) == 0 && len(prompt.Tokens) > s.BatchTokens() {
			l.unseen = true
		}
		l.holds(prompt)
	}
	if !s.captures() {
		return nil
	}
	if s.o.CaptureTokens > s.lay.window+1 { // rows between two looks are lost, so every look is saved for itself
		if prompt.Clip(len(prompt.Tokens)) != len(prompt.Tokens) {
			return nil
		}
		_, err := s.Save(ctx, prompt, sequence)
		return err
	}
	flags, format, section := uint32(0), s.lay.format, windowSection
	if s.tail {
		flags, format, section = FlagPartial, format.Tail(), 0
	}
	defer s.giveBack()
	blob, err := s.get(sequence, flags)
	if err != nil {
		return err
	}
	st, err := format.Parse(blob)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	sec := &st.Sections[section]
	if _, end, whole := sec.Range(); !whole || end != len(prompt.Tokens) {
		return fmt.Errorf("%w: the window of sequence %d ends at %d, expected %d", ErrPositions, sequence, end, len(prompt.Tokens))
	}
	l.holds(prompt)
	l.captured.grow(s.lay, s.model.Descriptor(), sec, 0, len(prompt.Tokens))
	if s.capturedBytes() > s.o.CaptureBytes {
		return s.makeRoom(ctx, prompt, sequence)
	}
	return nil
}

// captures reports whether the model has window rows that are copied on the way.
func (s *Session) captures() bool { return s.mode == Rows && s.lay.window > 0 }

// makeRoom gives up what the session holds beyond its bound. Another sequence that holds more than the one at hand loses its captured rows: it can then
// be restored at fewer positions. It is not saved, since only its owner knows what it holds by now. Otherwise the one at hand is saved.
func (s *Session) makeRoom(ctx context.Context, prompt kv.Prompt, sequence int) error {
	l := s.lines[sequence]
	most := l
	for _, other := range s.lines {
		if other.captured.bytes > most.captured.bytes {
			most = other
		}
	}
	if most != l {
		most.captured = captured{}
		return nil
	}
	if prompt.Clip(len(prompt.Tokens)) != len(prompt.Tokens) {
		return nil
	}
	_, err := s.Save(ctx, prompt, sequence)
	if err != nil && ctx.Err() == nil {
		l.captured = captured{} // or they would be more with every look
	}
	return err
}

// capturedBytes is what the session holds for Save, of all sequences.
func (s *Session) capturedBytes() (n int64) {
	for sequence := range s.lines {
		l := s.line(sequence) // what was emptied holds nothing
		n += l.captured.bytes + total(l.states)
	}
	return n
}

// captureEvaluated captures what Prefill has evaluated; after a shift there is nothing that could be saved. A store that does not take
// the rows (it is full, closed or only read) does not end the evaluation: Save says so.
func (s *Session) captureEvaluated(ctx context.Context, prompt kv.Prompt, sequence int) error {
	err := s.Capture(ctx, prompt, sequence)
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, ErrIdentity), errors.Is(err, ErrState), errors.Is(err, ErrPositions):
		return err
	case !errors.Is(err, ErrLineage):
		s.o.Logger.Warn("window rows that were captured are not stored: prompts cannot be restored there", slog.Any("why", err))
	}
	s.line(sequence).captured = captured{}
	return nil
}

// grow appends the rows that the section has of [from, to), beyond what was captured.
func (c *captured) grow(lay *layout, d kv.Descriptor, section *state.Section, from, to int) {
	planes := lay.windowPlanes()
	first, end, _ := section.Range()
	if first, end = max(first, from), min(end, to); first >= end {
		return
	}
	if n := len(c.stretches); n == 0 || first > c.stretches[n-1].end {
		c.stretches = append(c.stretches, stretch{first, first, make([][]kv.Piece, len(planes))})
	}
	last := &c.stretches[len(c.stretches)-1]
	if end <= last.end {
		return
	}
	for i, t := range planes {
		tensor := d.Tensors[t]
		mem := state.Pack(tensor, section.Rows(lay.planes[t].layer, lay.planes[t].role).Slice(tensor, last.end, end))
		c.bytes += int64(len(mem))
		last.pieces[i] = append(last.pieces[i], kv.Piece{Mem: mem, Count: end - last.end})
	}
	last.end = end
	c.unsaved = true
}

// end is the position behind the last captured row; 0 if there is none.
func (c *captured) end() int {
	if n := len(c.stretches); n > 0 {
		return c.stretches[n-1].end
	}
	return 0
}

// rows are the captured rows of a window tensor, by its number among them.
func (x *stretch) rows(i int) kv.TensorRows {
	return kv.TensorRows{First: x.first, Pieces: x.pieces[i]}
}

// drop forgets the rows before a position.
func (c *captured) drop(before int) { c.keep(before, int(^uint(0)>>1)) }

// cut forgets the rows from a position on.
func (c *captured) cut(n int) { c.keep(0, n) }

// keep keeps the rows of the positions [from, to).
func (c *captured) keep(from, to int) {
	if n := len(c.stretches); n == 0 || c.stretches[0].first >= from && c.stretches[n-1].end <= to {
		return
	}
	c.bytes = 0
	for i := range c.stretches {
		c.stretches[i].keep(from, to)
	}
	c.stretches = slices.DeleteFunc(c.stretches, func(x stretch) bool { return x.first >= x.end })
	for _, x := range c.stretches {
		for _, pieces := range x.pieces {
			for _, p := range pieces {
				c.bytes += int64(len(p.Mem))
			}
		}
	}
	c.unsaved = c.unsaved && len(c.stretches) > 0
}

func (x *stretch) keep(from, to int) {
	first, end := max(x.first, from), min(x.end, to)
	if first >= end {
		*x = stretch{}
		return
	}
	for i, pieces := range x.pieces {
		var kept []kv.Piece
		at := x.first
		for _, p := range pieces { // packed, so that a row has as many bytes as the next
			row := len(p.Mem) / p.Count
			if a, b := max(first-at, 0), min(end-at, p.Count); a < b {
				kept = append(kept, kv.Piece{Mem: p.Mem[a*row : b*row], Count: b - a})
			}
			at += p.Count
		}
		x.pieces[i] = kept
	}
	x.first, x.end = first, end
}

// until is the prompt up to position n, with the span that it may lie in.
func until(p kv.Prompt, n int) kv.Prompt {
	p.Tokens = p.Tokens[:n]
	for i, s := range p.Spans {
		if s.Start >= n {
			p.Spans = p.Spans[:i]
			break
		}
	}
	return p
}
