package chat

import (
	"context"
	"slices"

	"github.com/dormousekv/dormouse/kv"
)

// aside is what the open turn takes the place of. The file has it still, and the conversation has it again if the turn is not committed.
type aside struct {
	log    *log
	id     TurnID // the first turn that is taken back
	start  int    // where it began
	placed []fact // facts that were placed, or removed, in the new log: its turn's frame says so
}

// setAside takes back the turns from id on in memory alone. Nothing is stored and the file is not written anew until the turn that takes their place is
// committed: what a process leaves that is killed meanwhile is the old log.
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

// putBack makes the conversation what it was before setAside. What was set meanwhile is in the file, and stays.
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
	if c.seq >= 0 { // the rows from start on are another log's
		c.h.release(c.seq)
	}
	c.stored = min(c.stored, start)
	c.seq, c.rows, c.hole = -1, c.stored, noHole
}

// takeBack takes the parts from number i on out of log and cache.
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
		c.park() // the row that the next turn goes on from is in no cache
	}
}

// from is the number of the first part of a turn, or of one after it; the number of all parts, if there is none.
func (l *log) from(id TurnID) int {
	i := slices.IndexFunc(l.parts, func(p part) bool { return p.kind == turnPart && p.id >= uint64(id) })
	if i < 0 {
		return len(l.parts)
	}
	return i
}

// without is the log with the turns from id on taken back; 0: as it is.
func (l *log) without(id TurnID) *log {
	if i := l.from(id); id != 0 && i < len(l.parts) {
		l = l.clone()
		l.cut(i)
	}
	return l
}

// clone shares no memory that either log changes.
func (l *log) clone() *log {
	m := *l
	m.parts, m.spans, m.pending, m.roots = slices.Clone(l.parts), slices.Clone(l.spans), slices.Clone(l.pending), slices.Clone(l.roots)
	m.tokens = slices.Clip(l.tokens)
	return &m
}

// encode is the frame of a turn that takes the place of others, with the turn's own frame.
func (o *aside) encode(turn []byte) []byte {
	var w out
	w.uint(uint64(o.id))
	list(&w, o.placed, func(f fact) { w.raw(f.encode()) })
	return append(w.b, turn...)
}

// applyInstead takes back turns, places facts, and appends the turn that takes their place.
func (l *log) applyInstead(body []byte) error {
	r := in{b: body}
	id := TurnID(r.uint())
	placed := items(&r, r.fact)
	if r.err != nil {
		return r.err
	}
	t, err := decodeTurn(r.b)
	if err != nil {
		return err
	}
	i, err := l.turn(id)
	if err != nil {
		return notThere(err)
	}
	l.cut(i)
	l.pending = slices.DeleteFunc(l.pending, func(f fact) bool {
		return slices.ContainsFunc(placed, func(g fact) bool { return g.id == f.id })
	})
	l.settle(placed)
	return l.applyTurn(&t)
}
