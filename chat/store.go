package chat

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// headPriority is the priority of the ref on a conversation's rows. Other rows are evicted first.
const headPriority = 100

// store puts the new rows into the store. It returns the error of ctx alone: if the store is full or fails, the rows are computed again later, and the
// error is counted. Nothing is stored of a conversation that was deleted meanwhile.
func (c *Conversation) store(ctx context.Context) error {
	if c.old != nil {
		return ctx.Err() // the log is not committed yet
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
		if gone := c.file.Err(); errors.Is(gone, db.ErrNotFound) || errors.Is(gone, db.ErrStale) { // deleted while the rows were stored
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

// noHole is a position after all rows.
const noHole = math.MaxInt

// look finds the first row that is neither in the cache nor in the store. The rows in gone have left the cache.
func (c *Conversation) look(gone []kv.Range) {
	for _, r := range gone {
		if r.End > c.stored {
			c.hole = min(c.hole, max(r.Start, c.stored))
		}
	}
}

// sweep takes out of the cache the rows that no view will have.
func (c *Conversation) sweep(ctx context.Context) error {
	gone := without(whole(c.rows), c.log.live())
	if n := len(gone); n > 0 && gone[n-1].End == c.rows { // the last row stays
		gone[n-1].End--
		gone = merged(gone)
	}
	if c.old != nil { // nothing is stored before the commit, so rows that are not stored stay
		gone = clipped(gone, 0, c.stored)
	}
	if n := len(gone); n > 0 && gone[n-1].End > c.stored { // store them first: without them, no later row can be stored
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
