package catalog

import (
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/kv"
)

// Of returns the catalog that a log head describes, which was read at that place. Its tombstones wait to be destroyed.
func Of(head *oplog.Snapshot, at Place) *Catalog {
	c := New()
	c.Apply(*head, at)
	return c
}

// Apply changes the catalog as an operation says that is logged.
func (c *Catalog) Apply(op oplog.Op, at Place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	op.Change(change{c, at})
}

// Hold keeps everybody else from the catalog until release, which applies op unless it is nil: so nobody sees the index after an
// operation beside the catalog before it.
func (c *Catalog) Hold() (release func(op oplog.Op, at Place)) {
	c.mu.Lock()
	return func(op oplog.Op, at Place) {
		defer c.mu.Unlock()
		if op != nil {
			op.Change(change{c, at})
		}
	}
}

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
		c.models.set(&models[i])
	}
	for _, r := range head.Refs {
		c.refs.set(r)
	}
	for _, n := range head.Notes {
		c.notes.set(n)
	}
	c.refs.former, c.refs.formers = head.FormerRefs, 0
	c.pending.add(head.Tombstones...)
	c.pending.unlink(head.Unlinked)
	for _, k := range head.Flagged {
		c.flags.add(k)
	}
}

func (x change) SetModel(m oplog.Model) { x.c.models.set(&Model{Model: &m, at: &x.at}) }

func (x change) DropModel(fp kv.Fingerprint, segments []uint64) {
	x.c.models.drop(fp)
	x.c.notes.dropModel(fp)
	x.c.refs.dropModel(fp)
	x.c.pending.unlink(segments)
	x.c.pending.behind = true
}

func (x change) SetRef(r oplog.Ref) { x.c.refs.set(r) }

func (x change) DropRef(name string) { x.c.refs.drop(name) }

func (x change) SetNote(n oplog.Note) { x.c.notes.set(n) }

func (x change) Bury(dead []oplog.Dead, barrier bool) { x.c.pending.bury(dead, barrier) }

func (x change) Deleted() { x.c.refs.deleted() }

func (x change) Flag(block kv.Key) { x.c.flags.add(block) }
