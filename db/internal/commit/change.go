package commit

import (
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// IsIndexDamage reports whether err says that index.db cannot be trusted any more.
func IsIndexDamage(err error) bool { return errors.Is(err, index.ErrDamaged) }

// Change is a change of log, index and catalog that is under way. Nobody else changes anything until End.
type Change struct {
	Index *index.Txn // the index's next version, as built so far

	l       *Ledger
	uses    []use
	op      oplog.Op // logged, and not in the catalog yet
	lsn     uint64   // of the last frame that Log appended; 0: none
	bytes   int64    // of that frame
	release func(oplog.Op, catalog.Place)
}

// Begin begins a change. The caller holds no lock that comes behind lock.Commit, and calls End.
func (l *Ledger) Begin() (*Change, error) {
	l.mu.Lock()
	c := &Change{l: l}
	if err := c.begin(); err != nil {
		return nil, l.Damaged(err)
	}
	return c, nil
}

// begin ranks the blocks anew that were used since the last change, in the order in which they were used. Where it does not get to its end, the change
// has ended.
func (c *Change) begin() (err error) {
	begun := false
	defer func() {
		if !begun { // also where the host's policy panics
			c.End()
		}
	}()
	if err = c.l.Poisoned(); err != nil {
		return err
	}
	if c.Index, err = c.l.Index.Begin(); err != nil {
		return err
	}
	c.uses = c.l.recency.take()
	for _, x := range c.uses {
		entry, ok, err := c.Index.Get(x.key, 0)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		entry.Hits++
		if err := c.Index.Use(x.key, c.l.Ranks.Now(c.l.Catalog, entry), entry.Hits, x.minute); err != nil {
			return err
		}
	}
	begun = true
	return nil
}

// Commit logs op, shows the index's next version, and has the catalog follow. A nil op: nothing is logged. If lsn is not 0 in spite of an error, op is
// logged and will be applied when the index is rebuilt.
func (c *Change) Commit(op oplog.Op) (lsn uint64, err error) {
	if op != nil {
		if lsn, err = c.Log(op); err != nil {
			return lsn, err
		}
	}
	if err = c.Publish(); err == nil {
		c.Apply()
	}
	return lsn, err
}

// Log appends the frame of op. From here on op happened, whatever comes.
func (c *Change) Log(op oplog.Op) (lsn uint64, err error) {
	if c.Index != nil && c.Index.Err() != nil { // what was built cannot be published
		return 0, c.l.Damaged(c.Index.Err())
	}
	frame := oplog.Encode(op)
	lsn, err = c.l.append(op, frame)
	c.l.Dirty.Store(true)
	if err != nil {
		return 0, err
	}
	c.op, c.lsn, c.bytes = op, lsn, int64(len(frame))
	c.l.Growth.Add(c.bytes)
	return lsn, nil
}

// LogState is Log of an op that changes only the catalog, which follows at once.
func (c *Change) LogState(op oplog.Op) (lsn uint64, err error) {
	if lsn, err = c.Log(op); err != nil {
		return 0, err
	}
	c.l.StateGrowth.Add(c.bytes)
	c.Apply()
	return lsn, nil
}

// LogState is a change of its own that logs an op which changes only the catalog.
func (l *Ledger) LogState(op oplog.Op) (lsn uint64, err error) {
	c, err := l.Begin()
	if err != nil {
		return 0, err
	}
	defer c.End()
	if lsn, err = c.LogState(op); err != nil {
		return 0, err
	}
	return lsn, c.Publish() // the ranks of what was used
}

// Publish makes what was built the index's next version. Where an operation was logged, the catalog is held until Apply: so nobody sees the index
// after it beside the catalog before it.
func (c *Change) Publish() error {
	if c.op != nil {
		c.release = c.l.Catalog.Hold()
	}
	err := c.Index.Publish()
	c.l.Dirty.Store(true)
	if err == nil {
		c.uses = nil
		return nil
	}
	if c.release != nil {
		c.release(nil, catalog.Place{})
		c.op, c.release = nil, nil
	}
	if c.lsn != 0 {
		err = fmt.Errorf("%w: frame %d is logged and was not applied: %w", index.ErrDamaged, c.lsn, err)
	}
	return c.l.Damaged(err)
}

// Apply has the catalog follow the operation that was logged, if there is one.
func (c *Change) Apply() {
	if c.op == nil {
		return
	}
	if at := (catalog.Place{LSN: c.lsn}); c.release != nil {
		c.release(c.op, at)
	} else {
		c.l.Catalog.Apply(c.op, at)
	}
	c.op, c.release = nil, nil
}

// End ends the change. What was not published is given up. A second call does nothing.
func (c *Change) End() {
	if c.l == nil {
		return
	}
	if c.release != nil { // of who panics between Publish and Apply
		c.release(nil, catalog.Place{})
	}
	if c.Index != nil {
		c.Index.End()
	}
	c.l.recency.putBack(c.uses)
	c.l.mu.Unlock()
	c.l = nil
}

// Damaged has the index rebuilt, if err says that it is damaged, and returns err.
func (l *Ledger) Damaged(err error) error {
	if IsIndexDamage(err) && l.OnDamage != nil {
		l.OnDamage(err)
	}
	return err
}

// append appends the operation's frame. A frame that frees space may use what the log keeps in reserve, and as a last resort the blocks of the
// spare file: otherwise a full disk would stay full.
func (l *Ledger) append(op oplog.Op, frame []byte) (uint64, error) {
	kind, room := op.Kind(), op.Room()
	if room == oplog.Ordinary {
		return l.WAL.Append(kind, frame)
	}
	reserved := func() (uint64, error) {
		if room == oplog.Last {
			return l.WAL.AppendReserved(kind, frame)
		}
		return l.WAL.AppendBefore(kind, frame, oplog.BarrierBytes)
	}
	lsn, err := reserved()
	if !errors.Is(err, vfs.ErrNoSpace) || l.WAL.Err() != nil {
		return lsn, err
	}
	if derr := l.WAL.Donate(l.Spare); derr != nil {
		return 0, err
	}
	l.Logger.Warn("the Bloom filter's file made room for the log on a full disk", "dir", l.Dir)
	return reserved()
}

// RemoveBlock takes a block without children out of the index, with the records of all its groups. Its parent, if that has no other child, becomes a
// leaf with the later recency of the two, in its own class.
func (c *Change) RemoveBlock(block index.Entry) (dead []oplog.Dead, bytes int64, err error) {
	var groups []index.Entry
	if err := c.Index.Groups(block.Key, func(g index.Entry) bool {
		groups = append(groups, g)
		return true
	}); err != nil {
		return nil, 0, err
	}
	for _, g := range groups {
		dead = append(dead, oplog.Dead{Key: g.Key, Group: g.Group, Loc: g.Loc})
		bytes += g.Loc.Length
		if err := c.Index.Remove(g.Key, g.Group); err != nil {
			return nil, 0, err
		}
	}
	return dead, bytes, c.Rerank(block.Parent)
}

// Rerank gives block k the class that its refs say, in the order that it has.
func (c *Change) Rerank(k kv.Key) error { return recovery.Rerank(c.Index, c.l.Catalog, k) }
