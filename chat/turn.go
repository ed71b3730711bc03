package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// ID returns the turn's number. It names the turn once that is committed.
func (t *Turn) ID() TurnID { return TurnID(t.part.id) }

// decode computes the tokens that were not computed yet, and keeps the scores after the last one.
func (t *Turn) decode(ctx context.Context) error {
	if t.rows == len(t.tokens) && t.known {
		return nil
	}
	began := time.Now()
	scores, n, err := t.c.h.decode(ctx, t.c, t.seq, t.part.start+t.rows, t.tokens[t.rows:], true)
	if t.rows < t.part.turn.user {
		t.c.stats.Prefilled += n
		t.c.stats.Prefill += time.Since(began)
	} else {
		t.c.stats.Decoded += n
		t.c.stats.Decode += time.Since(began)
		t.stats.Decoded += n
		t.stats.Decode += time.Since(began)
	}
	t.rows += n
	t.known = false
	if err != nil {
		return err
	}
	t.scores, t.known = append(t.scores[:0], scores...), true
	return nil
}

// Append adds tokens to the answer that the model did not choose: the result of a tool, or the end of a template. The next call that needs scores
// computes them. If not all fit, Append adds none and returns [ErrTurnFull].
func (t *Turn) Append(ctx context.Context, tokens []kv.Token) error {
	leave, err := t.enter()
	if err != nil {
		return err
	}
	defer leave()
	if len(t.tokens)+len(tokens) > t.room {
		return fmt.Errorf("%w: %d tokens, and room for %d", ErrTurnFull, len(tokens), t.room-len(t.tokens))
	}
	if err := errors.Join(ctx.Err(), t.c.h.check(tokens)); err != nil {
		return err
	}
	t.tokens = append(t.tokens, tokens...)
	return nil
}

// Logits returns the scores of the next token. It computes what was not computed yet. The scores stay valid until the next call of a method of
// the turn.
func (t *Turn) Logits(ctx context.Context) ([]float32, error) {
	leave, err := t.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := t.decode(ctx); err != nil {
		return nil, err
	}
	return t.scores, nil
}

// Tokens returns the message and the answer so far.
func (t *Turn) Tokens() []kv.Token {
	t.c.h.mu.Lock()
	defer t.c.h.mu.Unlock()
	return slices.Clone(t.tokens)
}

// Answer returns the answer so far.
func (t *Turn) Answer() []kv.Token { return t.Tokens()[t.part.turn.user:] }

// Commit ends the turn and keeps it. When it returns nil, the turn is in the conversation's file. Commit also stores the rows. If that fails, they are
// computed again later, and Stats counts it. After an error the turn is still open: commit it again, or abort it.
func (t *Turn) Commit(ctx context.Context) error {
	leave, err := t.enter()
	if err != nil {
		return err
	}
	err = t.commit(ctx)
	s := t.stats
	leave()
	if err == nil {
		t.c.h.model.Observe(db.Observation{
			Asked: s.View + t.part.turn.user, Found: s.Loaded, Loaded: s.Loaded, Reused: s.Reused + s.Loaded, Prefilled: s.Prefilled, Decoded: s.Decoded,
			Lookup: s.Lookup, Load: s.Load, Prefill: s.Prefill, Decode: s.Decode,
		})
	}
	return err
}

func (t *Turn) commit(ctx context.Context) error {
	c := t.c
	before := c.stats
	r := turnRecord{part: t.part, tokens: t.tokens, evicted: c.evicted}
	kind, body := uint8(turnFrame), r.encode()
	if c.old != nil {
		kind, body = insteadFrame, c.old.encode(body)
	}
	if err := c.note(ctx, kind, body); err != nil {
		return err
	}
	instead := c.old != nil
	c.evicted, c.old = nil, nil
	start := len(c.log.tokens)
	c.log.place(t.part, t.tokens)
	if err := c.h.rt.Copy(t.seq, c.seq, kv.Range{Start: start, End: start + t.rows}); err != nil {
		c.park() // the rows are computed again
		c.stats.StoreErrors++
		c.stats.StoreError = err
	} else {
		c.rows = start + t.rows
	}
	t.end()
	c.stats.Turns++
	if c.seq >= 0 {
		c.store(ctx)
	}
	if instead && c.seq >= 0 {
		c.sweep(ctx) // rows that had to stay until they were stored; on an error the next turn does it
	}
	t.stats.Stored = c.stats.Stored - before.Stored
	if c.stats.StoreErrors > before.StoreErrors {
		t.stats.StoreError = c.stats.StoreError
	}
	c.failed = nil // a rewrite that failed is tried again after each turn
	c.h.tidy()
	return nil
}

// Abort ends the turn as if it had not begun. Turns that it replaced are there again, and facts that it placed stay. Turns evicted to make room for
// it return when the conversation is next opened, unless the log has been rewritten.
func (t *Turn) Abort(context.Context) error {
	t.c.h.mu.Lock()
	defer t.c.h.mu.Unlock()
	if t.ended {
		return ErrTurnEnded
	}
	t.end()
	t.c.h.tidy()
	return nil
}

// end closes the turn and gives its sequences back.
func (t *Turn) end() {
	t.dropBranches()
	t.c.h.release(t.seq)
	t.c.putBack()
	t.c.turn, t.ended = nil, true
	t.c.h.turns--
}

// dropBranches drops all branches of the turn.
func (t *Turn) dropBranches() {
	for _, b := range t.branches {
		b.gone = true
		t.c.h.release(b.seq)
	}
	t.branches = nil
}

// Stats returns the counters of the turn.
func (t *Turn) Stats() TurnStats {
	t.c.h.mu.Lock()
	defer t.c.h.mu.Unlock()
	return t.stats
}
