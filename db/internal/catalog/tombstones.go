package catalog

import (
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/internal/loc"
)

// Dying is what is dead and not yet destroyed.
type Dying struct {
	Records  []loc.Loc
	Unseen   []loc.Loc // records, too, that no open match can have found
	Segments []uint64  // to be unlinked
	Emptied  []uint64  // segments to be unlinked of which each record is dead by itself
	Behind   bool      // some of it waits for a barrier; else for its frame
}

// Bury makes tombstones of records that nothing names any more. behind: they wait for a barrier; else for their frame.
func (c *Catalog) Bury(dead []oplog.Dead, behind bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending.bury(dead, behind)
}

// BuryAt is Bury of what lies at those places.
func (c *Catalog) BuryAt(locs ...loc.Loc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending.add(locs...)
}

// Unlink has the files of segments go of which each record is a tombstone, or was destroyed. behind: they wait for a barrier.
func (c *Catalog) Unlink(behind bool, ids ...uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if _, ok := c.pending.unlinked[id]; !ok {
			c.pending.unlinked[id] = true
		}
	}
	c.pending.behind = c.pending.behind || behind
}

// Restore takes records that live out of what is to be destroyed.
func (c *Catalog) Restore(live map[loc.Loc]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range live {
		delete(c.pending.tombstones, l)
	}
	c.pending.fresh = slices.DeleteFunc(c.pending.fresh, func(l loc.Loc) bool { return live[l] })
}

// Defer keeps records from being destroyed that stay tombstones. They come back with BuryAt.
func (c *Catalog) Defer(records map[loc.Loc]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending.fresh = slices.DeleteFunc(c.pending.fresh, func(l loc.Loc) bool { return records[l] })
}

// Take takes what is to be destroyed and was not taken before, and the segments to be unlinked. GiveBack undoes it.
func (c *Catalog) Take() Dying {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := Dying{Records: c.pending.fresh, Unseen: c.pending.unseen, Behind: c.pending.behind}
	for id, emptied := range c.pending.unlinked {
		if emptied {
			d.Emptied = append(d.Emptied, id)
		} else {
			d.Segments = append(d.Segments, id)
		}
	}
	c.pending.fresh, c.pending.unseen, c.pending.behind = nil, nil, false
	return d
}

// GiveBack is for who could not destroy what was taken.
func (c *Catalog) GiveBack(d Dying) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending.fresh, c.pending.unseen, c.pending.behind = append(d.Records, c.pending.fresh...), append(d.Unseen, c.pending.unseen...), d.Behind || c.pending.behind
}

// Destroyed notes that the bytes of records are gone.
func (c *Catalog) Destroyed(records []loc.Loc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range records {
		delete(c.pending.tombstones, l)
	}
}

// DropUnlinked forgets the segments whose files are gone, with what was dead in them. Nothing is forgotten if none was to be unlinked.
func (c *Catalog) DropUnlinked(there func(id uint64) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending.unlinked) == 0 {
		return
	}
	for id := range c.pending.unlinked {
		if !there(id) {
			delete(c.pending.unlinked, id)
		}
	}
	for l := range c.pending.tombstones {
		if !there(l.Segment) {
			delete(c.pending.tombstones, l)
		}
	}
}

// Tombstones lists the records whose bytes may still be there.
func (c *Catalog) Tombstones() []loc.Loc {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Keys(c.pending.tombstones))
}

// IsDead reports whether a record, or its segment, is to be destroyed.
func (c *Catalog) IsDead(l loc.Loc) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, dead := c.pending.tombstones[l]
	_, unlinked := c.pending.unlinked[l.Segment]
	return dead || unlinked
}

// IsUnlinked reports whether a segment's file is to go.
func (c *Catalog) IsUnlinked(id uint64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, ok := c.pending.unlinked[id]
	return ok
}

// Unlinked lists the segments whose files are to go.
func (c *Catalog) Unlinked() []uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Keys(c.pending.unlinked))
}

// Waiting counts the records that wait to be taken, and their bytes.
func (c *Catalog) Waiting() (n int, bytes int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, waiting := range [][]loc.Loc{c.pending.fresh, c.pending.unseen} {
		n += len(waiting)
		for _, l := range waiting {
			bytes += l.Length
		}
	}
	return n, bytes
}

// IsTombstone reports whether a record is one.
func (c *Catalog) IsTombstone(l loc.Loc) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, ok := c.pending.tombstones[l]
	return ok
}

// Behind reports whether some of what waits to be taken waits for a barrier.
func (c *Catalog) Behind() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.pending.behind
}
