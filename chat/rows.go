package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// load brings the rows that the next view needs into the cache. It computes missing rows, each in the view that the log has for it.
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

// fetch loads the rows of the log that the store has.
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
		// A stored row is damaged, so the store has less now.
	}
}

// needed returns which of the first n rows must be in the cache: those that a later view may have, and the views of the parts that end after n.
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

// catchUp computes the tokens of the log that were not computed yet, and takes out of the cache the rows that no view will have.
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
