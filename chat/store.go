package chat

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

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
