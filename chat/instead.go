package chat

import (
	"context"

	"github.com/dormousekv/dormouse/kv"
)

// setAside takes back the turns from id on, in memory alone. Until the turn that replaces them is committed, nothing is stored and the file is not
// written anew. So a kill leaves the old log.
func (c *Conversation) setAside(ctx context.Context, id TurnID) error {
	i := c.log.from(id)
	if i == len(c.log.parts) {
		return nil // it was evicted, and all after it
	}
	if err := c.store(ctx); err != nil { // the rows leave the cache
		return err
	}
	c.old = &aside{log: c.log.clone(), id: TurnID(c.log.parts[i].id), start: c.log.parts[i].start}
	c.takeBack(i)
	return c.load(ctx)
}

// putBack undoes setAside. Facts that were set meanwhile are in the file, and stay.
func (c *Conversation) putBack() {
	if c.old == nil {
		return
	}
	l, start := c.old.log, c.old.start
	for _, f := range c.log.pending {
		if f.id > l.lastFact {
			l.set(f)
		}
	}
	l.lastTurn, l.lastFact, l.meta = c.log.lastTurn, c.log.lastFact, c.log.meta
	c.log, c.old = l, nil
	if c.seq >= 0 { // the rows from start on belong to the other log
		c.h.release(c.seq)
	}
	c.stored = min(c.stored, start)
	c.seq, c.rows, c.hole = -1, c.stored, noHole
}

// takeBack takes the parts from number i on out of the log and the cache.
func (c *Conversation) takeBack(i int) {
	c.dropRewrite()
	start := c.log.parts[i].start
	c.log.cut(i)
	c.stored = min(c.stored, start)
	if c.seq < 0 || c.rows < start {
		c.rows = min(c.rows, start)
		return
	}
	c.rows = start
	if c.hole >= start {
		c.hole = noHole
	}
	if last := c.log.parts[i-1]; last.gone || c.h.rt.Remove(c.seq, kv.Range{Start: start, End: everything.End}) != nil {
		c.park() // the cache has lost the row that the next turn continues
	}
}
