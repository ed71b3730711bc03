package oplog

import (
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/packed"
)

// Remove takes records out of the store: evicted, or deleted for good.
type Remove struct {
	Deleted bool // false: evicted
	Behind  bool // evicted for something that was put since, which must be durable before the bytes go; not logged
	Dead    []Dead
	Refs    []string // refs that go with them
	Seq     uint64   // the last that was given to a record: what has a later one was stored since
}

func (Remove) Kind() uint8 { return KindRemove }

func (op Remove) String() string {
	why := "evicted"
	if op.Deleted {
		why = "deleted"
	}
	return fmt.Sprintf("remove of %s that were %s, with %s", count(len(op.Dead), "record"), why, count(len(op.Refs), "ref"))
}

func (Remove) Room() Room { return Reserved }

// The numbers of records that were never published, and of sessions, may be in no other frame.
func (op Remove) Numbers() Counters { return Counters{Seq: op.Seq + 1} }

func (op Remove) Places(see func(at loc.Loc, is Use)) { seeDead(op.Dead, see) }

func (op Remove) Replay(ix Index) error {
	if err := ix.Remove(op.Dead, op.Seq); err != nil {
		return err
	}
	for _, name := range op.Refs {
		ix.RankRef(name)
	}
	return nil
}

// What was deleted waits for a barrier. What was evicted waits for this frame alone: nothing takes its place.
func (op Remove) Change(c Catalog) {
	c.Bury(op.Dead, op.Deleted || op.Behind)
	for _, name := range op.Refs {
		c.DropRef(name)
	}
	if op.Deleted {
		c.Deleted()
	}
}

// remove = bool deleted | u64 seq | list of dead | list of string
func (op Remove) append(b []byte) []byte {
	b = slices.Grow(b, 17+len(op.Dead)*deadBytes)
	b = le.AppendUint64(packed.AppendBool(b, op.Deleted), op.Seq)
	b = packed.AppendList(b, op.Dead, appendDead)
	return packed.AppendList(b, op.Refs, packed.AppendBytes[string])
}

func (Remove) read(r *reader) Op {
	return Remove{Deleted: r.Bool("deleted"), Seq: r.U64(), Dead: r.dead(), Refs: packed.List(&r.Reader, 4, r.Text)}
}
