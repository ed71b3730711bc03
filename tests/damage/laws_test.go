package damage

import (
	"strings"

	"github.com/dormousekv/dormouse/kv"
)

// cost is what a damage may cost. Whatever it does not name must be there in full.
//
//   - The bytes of a live record: prompts that rest on its block end before it. That is all that damage in a segment may
//     cost: its header is not needed to read a record, and index.db not to know what there is.
//   - A frame of the log that nothing shows to have been durable: a kill may have torn it, so it and those behind it did not
//     happen. Prompts that they put are not there. What shows it are later frames: where those are gone with it, nothing does.
//   - Any other place of the log: what frames there said. Deletions may be undone, refs lost. Records are found by a scan.
//   - index.db, bloom, FORMAT, LOCK: nothing. Of index.db, a moment: what is asked before the damage is met and the index
//     built anew may be a miss.
//   - index.db and the log at once, as where a page of one is swapped with one of the other: refs, which nothing else holds.
type cost struct {
	blocks map[kv.Key]bool
	step   int  // puts of the log from here on may be gone; -1: none
	log    bool // deletions may be undone, refs lost
	index  bool // misses until the index is rebuilt
}

// costOf says what damage of [lo, hi) of a file may cost. sure: a later frame can still show what had been durable.
func (x *base) costOf(c *cost, file string, lo, hi int, sure bool) {
	if file == "index.db" {
		c.index = true
	}
	if strings.HasPrefix(file, "wal/") && file != "wal/next.wal.tmp" {
		c.log = true
	}
	for _, r := range x.regions[file] {
		if r.hi <= lo || hi <= r.lo {
			continue
		}
		if r.block != (kv.Key{}) {
			if c.blocks == nil {
				c.blocks = map[kv.Key]bool{}
			}
			c.blocks[r.block] = true
		}
		if r.what == "log: frame" && (r.step >= x.sure || !sure) && (c.step < 0 || r.step < c.step) {
			c.step = r.step
		}
	}
}

// least is how many tokens of a chat must come back.
func (x *base) least(c *cost, ch *chat) int {
	n := ch.want
	for before := -1; n != before; {
		before = n
		for _, u := range ch.rests[before] {
			if c.blocks[u.block] {
				n = min(n, u.least)
			}
		}
	}
	if c.step >= 0 {
		for _, s := range x.steps[c.step:] {
			if s.puts == ch.name {
				return 0
			}
		}
	}
	return n
}

// most is how many tokens of a chat may come back.
func (x *base) most(c *cost, ch *chat) int {
	if ch.lost && !c.log {
		return ch.want
	}
	return len(ch.p.Tokens)
}
