package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// BeginOptions say how a turn begins. The zero value takes the conversation's options.
type BeginOptions struct {
	Spans     []kv.Span // images in the message; positions count from its first token
	Embedding []float32 // of the message; Topic compares it with those of later messages
	Policy    Policy    // nil: the conversation's
	Reserve   int       // room for the answer, in tokens; 0: the conversation's
	Priority  int       // turns of a lower priority are evicted first, such as state that changes often
	Meta      []byte    // kept with the turn for the caller; at most MaxMeta bytes

	// Instead is the turn that this one replaces, with all turns after it. 0: none. Commit takes those turns back, in the same frame of the file. Until
	// then the conversation has them, also after a kill or Abort. While the turn is open, Turns and View leave them out. Facts stay.
	Instead TurnID
}

// Begin begins a turn. It evicts whole turns until the message and its answer fit, the oldest of the lowest priority first. It places the facts
// that were set, and computes the message in the view that the policy chooses. It returns a [*TooLongError] if the message can never fit.
func (c *Conversation) Begin(ctx context.Context, message []kv.Token, o BeginOptions) (_ *Turn, err error) {
	leave, err := c.enter(true)
	if err != nil {
		return nil, err
	}
	defer leave()
	if o.Instead != 0 {
		if _, err := c.log.turn(o.Instead); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(c.h.check(message), o.check(message)); err != nil {
		return nil, err
	}
	if o.Reserve == 0 {
		o.Reserve = c.o.Reserve
	}
	if o.Policy == nil {
		o.Policy = c.o.Policy
	}
	if len(message) > c.o.Ring || o.Reserve > c.o.Ring-len(message) {
		return nil, &TooLongError{Need: len(message) + min(o.Reserve, maxTokens), Have: c.o.Ring}
	}
	room := len(message) + o.Reserve
	before := c.stats
	began := time.Now()
	c.makeRoom(0, 0) // Ring may be smaller than last time
	if why, now := c.due(); now {
		if err := c.rewriteNow(ctx); err != nil {
			return nil, fmt.Errorf("rewriting the log (%s): %w", why, err)
		}
	}
	if err := c.load(ctx); err != nil {
		return nil, err
	}
	c.makeRoom(room, o.Instead)
	after := c.log.without(o.Instead)
	if need := len(after.tokens) + after.waiting() + room; c.h.lim.Trained > 0 && need > c.h.lim.Trained {
		if err := c.rewriteNow(ctx); err != nil {
			return nil, fmt.Errorf("rewriting the log (%d tokens, and the model was trained for %d): %w", need, c.h.lim.Trained, err)
		}
	}
	if o.Instead != 0 {
		defer func() {
			if c.turn == nil { // it failed, or the policy panicked
				c.putBack()
			}
		}()
		if err := c.setAside(ctx, o.Instead); err != nil {
			return nil, err
		}
	}
	if err := c.placeFacts(ctx); err != nil {
		return nil, err
	}
	if err := c.sweep(ctx); err != nil {
		return nil, err
	}
	t := &Turn{c: c, room: room, tokens: slices.Clone(message), part: part{kind: turnPart, view: c.choose(o)}}
	t.part.turn = turnNote{user: len(message), spans: slices.Clone(o.Spans), at: now(), priority: o.Priority,
		meta: slices.Clone(o.Meta), embedding: slices.Clone(o.Embedding)}
	t.part.start = len(c.log.tokens)
	show := time.Now()
	if t.seq, err = c.h.view(c, t.part.view); err != nil {
		return nil, err
	}
	t.stats.Show = time.Since(show)
	if err := t.decode(ctx); err != nil {
		c.h.release(t.seq)
		return nil, err
	}
	c.log.lastTurn++
	t.part.id = uint64(c.log.lastTurn)
	t.stats = TurnStats{
		Show: t.stats.Show, View: length(t.part.view), Reused: max(0, length(t.part.view)-(c.stats.Loaded-before.Loaded)-(c.stats.Prefilled-before.Prefilled)+len(message)),
		Loaded: c.stats.Loaded - before.Loaded, Prefilled: c.stats.Prefilled - before.Prefilled,
		Rewritten: c.stats.Rewritten - before.Rewritten, Begin: time.Since(began),
		Lookup: c.stats.Lookup - before.Lookup, Load: c.stats.Load - before.Load, Prefill: c.stats.Prefill - before.Prefill,
	}
	c.turn = t
	c.h.turns++
	return t, nil
}

func (o *BeginOptions) check(message []kv.Token) error {
	if len(message) == 0 {
		return fmt.Errorf("%w: a message has at least one token", ErrOptions)
	}
	if o.Reserve < 0 {
		return fmt.Errorf("%w: Reserve is %d", ErrOptions, o.Reserve)
	}
	if len(o.Meta) > MaxMeta || len(o.Embedding) > MaxMeta {
		return fmt.Errorf("%w: %d bytes of meta and an embedding of %d numbers, of each at most %d", ErrOptions, len(o.Meta), len(o.Embedding), MaxMeta)
	}
	p := kv.Prompt{Tokens: message, Spans: o.Spans}
	return p.Validate()
}

// makeRoom evicts turns until room tokens fit. The turns from instead on don't count, since the new turn replaces them. 0: it replaces none.
func (c *Conversation) makeRoom(room int, instead TurnID) {
	for {
		var first *part
		turns := 0
		for i := range c.log.parts {
			p := &c.log.parts[i]
			if p.kind != turnPart || p.gone || instead != 0 && p.id >= uint64(instead) {
				continue
			}
			turns += p.end - p.start
			if first == nil || p.turn.priority < first.turn.priority {
				first = p
			}
		}
		if turns+room <= c.o.Ring {
			return
		}
		first.gone = true
		c.evicted = append(c.evicted, TurnID(first.id))
		c.stats.Evicted++
	}
}

// placeFacts puts the pending facts into the log.
func (c *Conversation) placeFacts(ctx context.Context) error {
	if len(c.log.pending) == 0 {
		return nil
	}
	if c.old != nil {
		c.old.placed = c.log.pending
	} else {
		var w out
		w.int(len(c.log.pending))
		if err := c.note(ctx, placeFrame, w.b); err != nil {
			return err
		}
	}
	c.log.settle(c.log.pending)
	c.log.pending = nil
	return c.catchUp(ctx)
}

// choose returns the view that the policy chooses.
func (c *Conversation) choose(o BeginOptions) []kv.Range {
	turns := slices.DeleteFunc(c.infos(o.Embedding), func(t TurnInfo) bool { return t.Evicted })
	in := o.Policy(turns, o.Embedding)
	return c.log.turnView(func(id TurnID) bool {
		i := slices.IndexFunc(turns, func(t TurnInfo) bool { return t.ID == id })
		return i >= 0 && i < len(in) && in[i]
	})
}
