package chat

import (
	"context"
	"fmt"
	"math"

	"github.com/dormousekv/dormouse/kv"
)

// acquire hands out an empty sequence; if there is none, an idle conversation other than keep is parked.
func (h *Host) acquire(keep *Conversation) (int, error) {
	for len(h.free) == 0 {
		if !h.parkOldest(keep) {
			return 0, fmt.Errorf("%w: all %d sequences are in use", kv.ErrFull, h.lim.Sequences)
		}
	}
	seq := h.free[len(h.free)-1]
	h.free = h.free[:len(h.free)-1]
	return seq, nil
}

// everything is all positions there can be.
var everything = kv.Range{Start: 0, End: math.MaxInt32}

// release empties a sequence and takes it back. One that the runtime does not empty is not handed out again.
func (h *Host) release(seq int) error {
	err := h.rt.Remove(seq, everything)
	if err == nil {
		h.free = append(h.free, seq)
	}
	return err
}

// parkOldest frees some of the cache: it parks the idle conversation that was used longest ago, or else takes what a Warm has, or a rewrite
// that waits for the end of a turn, or else has keep give what it can. It says whether there was something.
func (h *Host) parkOldest(keep *Conversation) bool {
	var oldest *Conversation
	for _, c := range h.open {
		if c != keep && c.turn == nil && (c.seq >= 0 || c.re != nil) && (oldest == nil || c.used < oldest.used) {
			oldest = c
		}
	}
	if oldest == nil {
		return h.cool() || h.dropRewrite(keep) || keep != nil && keep.give()
	}
	oldest.park()
	return true
}

// dropRewrite gives up a rewrite of a conversation other than keep, of which a turn is open, and says whether there was one.
func (h *Host) dropRewrite(keep *Conversation) bool {
	for _, c := range h.open {
		if c != keep && c.re != nil && !c.stepping {
			c.dropRewrite()
			return true
		}
	}
	return false
}

// cool takes what a Warm has computed out of the cache, and says whether there was something. It is stored.
func (h *Host) cool() bool {
	if h.warmBusy {
		return false
	}
	for _, w := range h.warms {
		if w.seq >= 0 {
			_ = h.release(w.seq) // a sequence that the runtime does not empty is not handed out again
			w.seq = -1
			return true
		}
	}
	return false
}

// park takes the rows out of the cache. They are in the store then, but for what a Store that failed has left out.
func (c *Conversation) park() {
	c.dropRewrite()
	c.unload()
}

// unload is park without the new log.
func (c *Conversation) unload() {
	if c.seq < 0 {
		return
	}
	c.store(context.Background())
	c.h.release(c.seq)
	c.seq, c.rows, c.hole = -1, c.stored, noHole
}

// give frees some of the cache for what the conversation itself is doing, and says whether there was something. A turn goes before the
// rewrite, and a rewrite that somebody waits for before the old rows.
func (c *Conversation) give() bool {
	switch {
	case !c.stepping && c.re != nil:
		c.dropRewrite()
	case c.urgent && c.seq >= 0:
		c.unload()
	default:
		return false
	}
	return true
}

// cells estimates what the conversation takes of the cache.
func (c *Conversation) cells() (n int) {
	if c.seq >= 0 {
		n = length(clipped(c.log.live(), 0, c.rows))
	}
	if c.re != nil {
		n += c.re.rows
	}
	if t := c.turn; t != nil {
		n += t.rows
		for _, b := range t.branches {
			n += b.rows
		}
	}
	return n
}

// used estimates the cells in use from above: branches and views share cells with the conversation.
func (h *Host) used() (n int) {
	for _, c := range h.open {
		n += c.cells()
	}
	return n
}

// dropRewrite gives up a rewrite. It begins anew when it is due.
func (c *Conversation) dropRewrite() {
	if c.re != nil {
		c.h.release(c.re.seq)
		c.re = nil
	}
}

// clear drops rows that the runtime has kept of what nobody computes now.
func (h *Host) clear() {
	if rt, ok := h.rt.(interface{ Clear() }); ok {
		rt.Clear()
	}
}
