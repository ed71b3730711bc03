package chat

import (
	"context"
	"fmt"
	"math"

	"github.com/dormousekv/dormouse/kv"
)

// acquire hands out an empty sequence. If there is none, it parks an idle conversation other than keep.
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

// everything is the range of all positions.
var everything = kv.Range{Start: 0, End: math.MaxInt32}

// release empties a sequence and takes it back. If the runtime fails to empty it, nobody gets it again.
func (h *Host) release(seq int) error {
	err := h.rt.Remove(seq, everything)
	if err == nil {
		h.free = append(h.free, seq)
	}
	return err
}

// parkOldest frees some of the cache, and says whether it did. It parks the idle conversation that was used longest ago. If there is none, it
// takes the sequence of a Warm, then drops a rewrite that waits for the end of a turn, and at last keep gives what it can.
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

// dropRewrite drops a rewrite of a conversation other than keep, and says whether there was one.
func (h *Host) dropRewrite(keep *Conversation) bool {
	for _, c := range h.open {
		if c != keep && c.re != nil && !c.stepping {
			c.dropRewrite()
			return true
		}
	}
	return false
}

// cool takes the rows of a Warm out of the cache, and says whether there were any. They are stored.
func (h *Host) cool() bool {
	if h.warmBusy {
		return false
	}
	for _, w := range h.warms {
		if w.seq >= 0 {
			_ = h.release(w.seq) // on an error nobody gets the sequence again
			w.seq = -1
			return true
		}
	}
	return false
}

// park takes the rows out of the cache, and stores them before that. If that fails, the missing rows are computed again one day.
func (c *Conversation) park() {
	c.dropRewrite()
	c.unload()
}

// unload is park, but a rewrite keeps its rows.
func (c *Conversation) unload() {
	if c.seq < 0 {
		return
	}
	c.store(context.Background())
	c.h.release(c.seq)
	c.seq, c.rows, c.hole = -1, c.stored, noHole
}

// give frees some of the cache for the conversation's own work, and says whether it did. A turn comes before the rewrite. A rewrite that a caller
// waits for comes before the old rows.
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

// cells estimates the cells that the conversation uses.
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

// used estimates the cells in use. The figure is too high where branches and views share cells with the conversation.
func (h *Host) used() (n int) {
	for _, c := range h.open {
		n += c.cells()
	}
	return n
}

// dropRewrite drops the rewrite. When it is due, it begins anew.
func (c *Conversation) dropRewrite() {
	if c.re != nil {
		c.h.release(c.re.seq)
		c.re = nil
	}
}

// clear drops rows that the runtime keeps outside of its sequences.
func (h *Host) clear() {
	if rt, ok := h.rt.(interface{ Clear() }); ok {
		rt.Clear()
	}
}
