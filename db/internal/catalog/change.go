package catalog

import (
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/kv"
)

// change lets one operation change the catalog, whose lock is held. It is the oplog.Catalog that operations see.
type change struct {
	c  *Catalog
	at Place // of the operation
}

func (x change) Become(head oplog.Snapshot) {
	c := x.c
	c.reset()
	models := make([]Model, len(head.Models))
	for i := range head.Models {
		models[i].Model, models[i].at = &head.Models[i], &x.at
		c.setModel(&models[i])
	}
	for _, r := range head.Refs {
		c.setRef(r)
	}
	for _, n := range head.Notes {
		c.setNote(n)
	}
	c.former, c.formers = head.FormerRefs, 0
	c.addTombstones(head.Tombstones...)
	for _, id := range head.Unlinked {
		c.unlinked[id] = false
	}
	for _, k := range head.Flagged {
		x.Flag(k)
	}
}

func (x change) SetModel(m oplog.Model) { x.c.setModel(&Model{Model: &m, at: &x.at}) }

func (x change) DropModel(fp kv.Fingerprint, segments []uint64) {
	x.c.dropModel(fp)
	for _, id := range segments {
		x.c.unlinked[id] = false
	}
	x.c.behind = true
}

func (x change) SetRef(r oplog.Ref) { x.c.setRef(r) }

func (x change) DropRef(name string) { x.c.dropRef(name) }

func (x change) SetNote(n oplog.Note) { x.c.setNote(n) }

func (x change) Bury(dead []oplog.Dead, barrier bool) { x.c.bury(dead, barrier) }

func (x change) Deleted() {
	if x.c.former == oplog.FormerSet {
		x.c.former = oplog.FormerDeleted
	}
}

func (x change) Flag(block kv.Key) {
	x.c.flagged[block] = struct{}{}
	x.c.anyFlags.Store(true)
}
