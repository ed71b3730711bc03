package catalog

import (
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/oplog"
)

// Head returns what encodes the catalog as it is now, with ends and the next numbers, as the head of a log file. Changes until it is called
// do not touch it, and it takes no lock.
func (c *Catalog) Head(ends map[uint64]int64, next oplog.Counters) (encode func() []byte) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	head := oplog.Snapshot{Ends: ends, Next: next, FormerRefs: c.refs.former}
	for _, name := range slices.Sorted(maps.Keys(c.refs.of)) {
		head.Refs = append(head.Refs, c.refs.of[name].Ref)
	}
	head.Tombstones = slices.Collect(maps.Keys(c.pending.tombstones))
	head.Unlinked = slices.Collect(maps.Keys(c.pending.unlinked))
	head.Flagged = slices.Collect(maps.Keys(c.flags.of))
	head.Notes = c.notes.all()
	models := make([]*oplog.Model, 0, len(c.models.of)) // which are never changed
	for _, m := range c.models.of {
		models = append(models, m.Model)
	}
	return func() []byte {
		head := head
		head.Models = make([]oplog.Model, 0, len(models))
		for _, m := range models {
			head.Models = append(head.Models, *m)
		}
		return oplog.Encode(head)
	}
}
