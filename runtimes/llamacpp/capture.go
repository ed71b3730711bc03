package llamacpp

import (
	"context"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// capture is the window rows of the positions [first, end), copied out of the cache while they were in it.
type capture struct {
	prompt     kv.Prompt // up to end, in memory of its own
	first, end int
	bytes      int64
	pieces     [][]kv.Piece // by window tensor
}

// Capture copies the window layers' rows of a sliding-window model out of the cache, for [Session.Save]: the cache forgets
// them. prompt is what the sequence holds. A program with a loop of its own around llama_decode calls it after every
// batch of at most [Session.BatchTokens] tokens; Prefill does. For other models it does nothing.
func (s *Session) Capture(ctx context.Context, prompt kv.Prompt, sequence int) error {
	if ctx == nil {
		return errNoContext
	}
	if err := s.check(sequence); err != nil {
		return err
	}
	if s.mode != Rows || s.lay.window == 0 {
		return nil
	}
	if s.o.CaptureTokens > s.lay.window+1 { // rows between two looks are lost, so every look is saved for itself
		if prompt.Clip(len(prompt.Tokens)) != len(prompt.Tokens) {
			return nil
		}
		delete(s.captures, sequence)
		_, err := s.Save(ctx, prompt, sequence)
		return err
	}
	flags, format, section := uint32(0), s.lay.format, windowSection
	if s.tail {
		flags, format, section = FlagPartial, format.Tail(), 0
	}
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
	c := s.captures[sequence]
	if c == nil || !c.of(prompt) {
		c = &capture{}
		s.captures[sequence] = c
	}
	c.grow(s.lay, s.model.Descriptor(), sec, prompt)
	if c.bytes > s.o.CaptureBytes && prompt.Clip(c.end) == c.end {
		if _, err := s.Save(ctx, prompt, sequence); err != nil {
			return err
		}
		// The last block goes on, and is then stored under another key: its rows are still needed.
		d := s.model.Descriptor()
		start, end := prompt.Block(prompt.BlockAt(c.end-1, d.BlockTokens), d.BlockTokens)
		if end-start == d.BlockTokens {
			start = end
		}
		c.drop(s.lay, d, start)
	}
	return nil
}

// of reports whether the rows belong to that prompt: K and V depend on all tokens before, so all are compared.
func (c *capture) of(p kv.Prompt) bool {
	return len(p.Tokens) >= c.end && samePrompt(c.prompt, until(p, c.end))
}

// grow appends the rows that the section has beyond the capture's end.
func (c *capture) grow(lay *layout, d kv.Descriptor, section *state.Section, prompt kv.Prompt) {
	planes := lay.windowPlanes()
	first, end, _ := section.Range()
	if c.pieces == nil || first > c.end {
		*c = capture{first: first, end: first, pieces: make([][]kv.Piece, len(planes))}
	}
	if end <= c.end {
		return
	}
	for i, t := range planes {
		tensor := d.Tensors[t]
		rows := section.Rows(lay.planes[t].layer, lay.planes[t].role).Slice(tensor, c.end, end)
		mem := state.Pack(tensor, rows)
		c.bytes += int64(len(mem))
		c.pieces[i] = append(c.pieces[i], kv.Piece{Mem: mem, Count: end - c.end})
	}
	c.end = end
	c.prompt = clonePrompt(until(prompt, end))
}

// drop forgets the rows before a position.
func (c *capture) drop(lay *layout, d kv.Descriptor, before int) {
	before = min(max(before, c.first), c.end)
	c.bytes = 0
	for i, t := range lay.windowPlanes() {
		rows := kv.TensorRows{First: c.first, Pieces: c.pieces[i]}.Slice(d.Tensors[t], before, c.end)
		c.pieces[i] = rows.Pieces
		for _, p := range rows.Pieces {
			c.bytes += int64(len(p.Mem))
		}
	}
	c.first = before
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

func samePrompt(a, b kv.Prompt) bool {
	return slices.Equal(a.Tokens, b.Tokens) && slices.Equal(a.Spans, b.Spans) && slices.Equal(a.Adapters, b.Adapters)
}

func clonePrompt(p kv.Prompt) kv.Prompt {
	p.Tokens, p.Spans, p.Adapters = slices.Clone(p.Tokens), slices.Clone(p.Spans), slices.Clone(p.Adapters)
	return p
}
