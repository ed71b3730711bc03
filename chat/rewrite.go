package chat

import (
	"context"
	"slices"
	"time"
)

// tidySlice is how many tokens a rewrite computes at a time between turns. A turn that begins waits for no more than these.
const tidySlice = 32

// due says why the log should be rewritten; empty: it need not be. With now, it must be rewritten before the next turn, which would not fit.
func (c *Conversation) due() (why string, now bool) {
	n, trained := len(c.log.tokens), c.h.lim.Trained
	limit := c.o.Log
	if trained > 0 { // so that the next turn, and the one after it, fit
		limit = min(limit, trained-c.o.Ring-c.o.Ring/2)
	}
	if c.rewrite != "" && c.rewrite != mergedFacts {
		return c.rewrite, true
	}
	if facts, turns := c.log.sizes(); n <= limit || facts+turns == n {
		return c.rewrite, false
	}
	return "the log is long", n > limit+c.o.Ring/2
}

const mergedFacts = "facts were merged"

// beginRewrite starts a rewrite, or brings one up to date with the log.
func (c *Conversation) beginRewrite(ctx context.Context) error {
	if c.re != nil && c.re.outdated(c.log.coming()) {
		c.dropRewrite()
	}
	if c.re == nil {
		seq, err := c.h.acquire(c)
		if err != nil {
			return err
		}
		re := &rewriting{log: c.log.compact(c.o.System), seq: seq, upto: len(c.log.parts)}
		c.re = re
		if len(re.log.tokens) == 0 {
			return nil
		}
		p := re.log.prompt()
		n, err := c.h.loadRows(ctx, c, p, seq, nil)
		if err == nil && n > 0 {
			n, err = c.h.loadRows(ctx, c, p, seq, whole(n))
		}
		if err != nil {
			c.dropRewrite()
			return err
		}
		re.rows = n
		c.stats.Loaded += n
		return nil
	}
	re := c.re
	for _, p := range c.log.parts[re.upto:] {
		if !p.gone {
			if p.kind != factPart || !re.has(p.id) {
				re.log.adopt(c.log, &p)
			}
		}
	}
	re.upto = len(c.log.parts)
	for i := range re.log.parts { // evicted meanwhile: later parts of the new log have seen them
		if p := &re.log.parts[i]; p.kind == turnPart {
			if j, err := c.log.turn(TurnID(p.id)); err == nil {
				p.gone = c.log.parts[j].gone
			}
		}
	}
	return nil
}

// has says whether a fact is in the new log.
func (r *rewriting) has(id uint64) bool {
	return slices.ContainsFunc(r.log.parts, func(p part) bool { return p.kind == factPart && p.id == id })
}

// outdated says whether the new log has a fact that was removed or replaced. Then the new log must be computed again without it.
func (r *rewriting) outdated(facts []fact) bool {
	return slices.ContainsFunc(r.log.parts, func(p part) bool {
		return p.kind == factPart && !slices.ContainsFunc(facts, func(f fact) bool { return f.id == p.id })
	})
}

// stepRewrite computes up to n tokens of the new log. When all are computed, the new log replaces the old one.
func (c *Conversation) stepRewrite(ctx context.Context, n int) (done bool, err error) {
	c.stepping = true
	defer func() { c.stepping = false }()
	if err := c.beginRewrite(ctx); err != nil {
		return false, err
	}
	re := c.re
	began := time.Now()
	if k := min(n, len(re.log.tokens)-re.rows); k > 0 {
		_, k, err := c.h.decode(ctx, c, re.seq, re.rows, re.log.tokens[re.rows:re.rows+k], false)
		re.rows += k
		c.stats.Rewritten += k
		if err != nil {
			return false, err
		}
	}
	c.stats.Rewrite += time.Since(began)
	if re.rows < len(re.log.tokens) {
		return false, nil
	}
	return true, c.swap(ctx)
}

// swap replaces the old log by the new one: it deletes the stored rows, replaces the file, and takes over the new rows.
func (c *Conversation) swap(ctx context.Context) error {
	began := time.Now()
	re := c.re
	c.stored = min(c.stored, c.log.system()) // also if the deletion fails half way
	if err := c.deleteRows(ctx, c.log.roots); err != nil {
		return err
	}
	re.log.lastTurn, re.log.lastFact, re.log.meta = c.log.lastTurn, c.log.lastFact, c.log.meta
	re.log.pending = slices.DeleteFunc(slices.Clone(c.log.pending), func(f fact) bool { return len(f.tokens) == 0 || re.has(f.id) })
	h := c.head
	h.system, h.fingerprint = slices.Clone(c.o.System), c.h.model.Fingerprint()
	if err := c.replace(ctx, re.log.frames(h, nil)); err != nil {
		return err
	}
	// The new log is in the file. An error from here on costs time later, and nothing else.
	c.head = h
	if c.seq >= 0 {
		c.h.release(c.seq)
	}
	c.log, c.seq, c.rows, c.stored, c.hole = re.log, re.seq, re.rows, 0, noHole
	c.re, c.rewrite, c.evicted, c.unstored = nil, "", nil, true
	c.stats.Rewrites++
	if len(c.log.tokens) > 0 {
		if n, err := c.h.rt.Load(ctx, c.log.prompt(), c.seq, nil); err == nil {
			c.stored = min(n, c.rows)
		}
	}
	c.sweep(ctx) // on an error the next turn does it; the rows are stored later
	c.stats.Swap = time.Since(began)
	return nil
}

// rewriteNow rewrites the log before it returns.
func (c *Conversation) rewriteNow(ctx context.Context) error {
	c.urgent = true
	defer func() { c.urgent = false }()
	for {
		if done, err := c.stepRewrite(ctx, slice); done || err != nil {
			return err
		}
	}
}

// tidy starts the goroutine that does what is due while no turn is open. The caller holds the lock.
func (h *Host) tidy() {
	if h.tidier || h.closed || h.turns > 0 || h.nextDue() == nil {
		return
	}
	h.tidier = true
	h.done.Go(func() {
		for h.tidySome() {
		}
	})
}

// nextDue returns a conversation whose log should be rewritten, or whose new rows should be stored. It skips those whose last try failed. A rewrite that
// was begun comes first: the cache may not have room for two.
func (h *Host) nextDue() (next *Conversation) {
	for _, c := range h.open {
		why, _ := c.due()
		if c.turn != nil || c.failed != nil || why == "" && !c.unstored {
			continue
		}
		if begun := c.re != nil; next == nil || begun && next.re == nil || begun == (next.re != nil) && c.used < next.used {
			next = c
		}
	}
	return next
}

// tidyStep computes n tokens of a rewrite, or stores the rows of a new log.
func (c *Conversation) tidyStep(ctx context.Context, n int) error {
	if c.unstored {
		return c.store(ctx)
	}
	_, err := c.stepRewrite(ctx, n)
	return err
}

// tidySome does one step of what is due, and says whether there is more to do now. Turns go first.
func (h *Host) tidySome() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.nextDue()
	if h.closed || h.turns > 0 || c == nil {
		h.tidier = false
		return false
	}
	if err := c.tidyStep(h.ctx, h.tidySlice); err != nil {
		c.dropRewrite()
		c.failed = err
		c.stats.RewriteErrors++
		c.stats.RewriteError = err
	}
	return true
}

// Tidy rewrites all logs that should be rewritten, and stores their rows. It returns when that is done, or ctx is.
func (h *Host) Tidy(ctx context.Context) error {
	h.mu.Lock()
	for _, c := range h.open {
		c.failed = nil
	}
	h.mu.Unlock()
	for {
		h.mu.Lock()
		c := h.nextDue()
		if h.closed {
			h.mu.Unlock()
			return ErrClosed
		}
		if c == nil {
			h.mu.Unlock()
			return nil
		}
		c.urgent = true
		err := c.tidyStep(ctx, slice)
		c.urgent = false
		h.mu.Unlock()
		if err != nil {
			return err
		}
	}
}
