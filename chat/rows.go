package chat

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// load brings the rows into the cache that the coming view needs, and computes those that are missing, each in the view that is recorded.
func (c *Conversation) load(ctx context.Context) error {
	if c.seq < 0 {
		if err := c.fetch(ctx); err != nil {
			return err
		}
		facts, turns := c.log.sizes()
		if missing := len(c.log.tokens) - c.rows; c.old == nil && missing > c.o.Ring && missing > facts+turns { // a new log takes less
			c.rewrite = "its rows are not stored any more"
			if err := c.rewriteNow(ctx); err != nil {
				return fmt.Errorf("rewriting the log (%s): %w", c.rewrite, err)
			}
		}
	}
	if err := c.catchUp(ctx); err != nil {
		return err
	}
	if c.stored < c.log.system() { // all conversations of this system prompt gain by it
		return c.store(ctx)
	}
	return nil
}

// fetch loads what is stored of the log.
func (c *Conversation) fetch(ctx context.Context) error {
	h := c.h
	p := c.log.prompt()
	for most := len(p.Tokens); ; {
		seq, err := h.acquire(c)
		if err != nil {
			return err
		}
		began := time.Now()
		n, err := h.loadRows(ctx, c, p, seq, nil)
		c.stats.Lookup += time.Since(began)
		if err == nil {
			var got int
			n = min(n, most)
			began, need := time.Now(), clipped(c.needed(n), 0, n)
			if got, err = h.loadRows(ctx, c, p, seq, need); err == nil && got >= n {
				c.seq, c.rows, c.stored = seq, n, n
				c.stats.Loaded += length(need)
				c.stats.Load += time.Since(began)
				return nil
			}
			most = got
		}
		if rerr := h.release(seq); err != nil || rerr != nil {
			return errors.Join(err, rerr)
		}
		// Something of what was stored is damaged: less is stored now.
	}
}

// loadRows is Load. If the cache is full, idle conversations other than keep are parked.
func (h *Host) loadRows(ctx context.Context, keep *Conversation, p kv.Prompt, seq int, rs []kv.Range) (int, error) {
	for {
		n, err := h.rt.Load(ctx, p, seq, rs)
		if !errors.Is(err, kv.ErrFull) || !h.parkOldest(keep) {
			return n, err
		}
	}
}

// needed is what must be there of the first n rows: what a coming view may have, and what those parts were computed in that go on behind n.
func (c *Conversation) needed(n int) []kv.Range {
	rs := append(c.log.live(), kv.Range{Start: max(0, n-1), End: n})
	for i := range c.log.parts {
		if p := &c.log.parts[i]; p.end > n {
			rs = append(rs, p.view...)
			rs = append(rs, kv.Range{Start: p.start, End: max(p.start, n)})
		}
	}
	return merged(rs)
}

// catchUp computes the tokens of the log that were not, and takes out of the cache what no view will have.
func (c *Conversation) catchUp(ctx context.Context) error {
	if c.rows < len(c.log.tokens) {
		began := time.Now()
		defer func() { c.stats.Prefill += time.Since(began) }()
	}
	for i := range c.log.parts {
		p := &c.log.parts[i]
		if at := max(p.start, c.rows); at < p.end {
			if err := c.compute(ctx, merged(append(slices.Clone(p.view), kv.Range{Start: p.start, End: at})), at, p.end); err != nil {
				return err
			}
		}
	}
	return c.sweep(ctx)
}

// compute decodes the log's tokens from at to end in a view.
func (c *Conversation) compute(ctx context.Context, view []kv.Range, at, end int) error {
	h := c.h
	seq, err := h.view(c, view)
	if err != nil {
		return err
	}
	_, n, err := h.decode(ctx, c, seq, at, c.log.tokens[at:end], false)
	c.stats.Prefilled += n
	if n > 0 {
		if cerr := h.rt.Copy(seq, c.seq, kv.Range{Start: at, End: at + n}); cerr != nil {
			err = errors.Join(err, cerr)
		} else {
			c.rows = at + n
		}
	}
	return errors.Join(err, h.release(seq))
}

// view makes a sequence that has the given rows of a conversation.
func (h *Host) view(c *Conversation, view []kv.Range) (int, error) {
	seq, err := h.acquire(c)
	if err != nil {
		return 0, err
	}
	for _, r := range view {
		if err := h.rt.Copy(c.seq, seq, r); err != nil {
			return 0, errors.Join(err, h.release(seq))
		}
	}
	return seq, nil
}

// sweep takes what is gone out of the cache.
func (c *Conversation) sweep(ctx context.Context) error {
	gone := without(whole(c.rows), c.log.live())
	if n := len(gone); n > 0 && gone[n-1].End == c.rows { // the last row stays
		gone[n-1].End--
		gone = merged(gone)
	}
	if c.old != nil { // nothing is stored until the turn is committed: what is not stays until then
		gone = clipped(gone, 0, c.stored)
	}
	if n := len(gone); n > 0 && gone[n-1].End > c.stored { // what comes after them could never be stored
		if err := c.store(ctx); err != nil {
			return err
		}
	}
	for _, r := range gone {
		if err := c.h.rt.Remove(c.seq, r); err != nil {
			return err
		}
	}
	c.look(gone)
	return nil
}

// noHole is behind all rows.
const noHole = math.MaxInt

// look finds the first row that is neither in the cache, where those that are gone are not, nor in the store.
func (c *Conversation) look(gone []kv.Range) {
	for _, r := range gone {
		if r.End > c.stored {
			c.hole = min(c.hole, max(r.Start, c.stored))
		}
	}
}

// headPriority is that of the ref that keeps a conversation's rows: others go first.
const headPriority = 100

// store puts the rows that are new. A store that is full or fails costs time later, and nothing else: the error is counted. Of a conversation
// that somebody has deleted meanwhile nothing is stored.
func (c *Conversation) store(ctx context.Context) error {
	if c.old != nil {
		return ctx.Err() // the log is one that nobody has yet
	}
	c.unstored = false
	p := c.log.prompt()
	n := p.Clip(min(c.rows, c.hole))
	if n <= c.stored {
		return nil
	}
	p = p.Prefix(n)
	began := time.Now()
	err := c.file.Err()
	if err == nil {
		err = c.h.rt.Store(ctx, p, c.seq, kv.Range{Start: c.stored, End: n})
	}
	if err == nil {
		c.stats.Stored += n - c.stored
		c.stored = n
		if n > c.log.system() && n >= kv.OpeningTokens {
			err = c.h.model.SetRef(ctx, Scope(c.id), p, db.RefOptions{Priority: headPriority})
		}
		if gone := c.file.Err(); errors.Is(gone, db.ErrNotFound) || errors.Is(gone, db.ErrStale) { // while they were being stored
			err = errors.Join(gone, c.deleteRows(context.WithoutCancel(ctx), c.log.roots))
		}
	}
	c.stats.Store += time.Since(began)
	if err != nil {
		c.stats.StoreErrors++
		c.stats.StoreError = err
		if n, err := c.h.rt.Load(ctx, c.log.prompt(), c.seq, nil); err == nil && n < c.stored { // evicted meanwhile
			c.stored = n
			c.look(without(whole(c.rows), c.log.live()))
		}
	}
	return ctx.Err()
}
