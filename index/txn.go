package index

import (
	"bytes"
	"fmt"

	"github.com/dormousekv/dormouse/kv"
)

// Txn is a change of the index that is being built: [Index.Begin]. Its queries see what it has done so far. It must not be used by two goroutines
// at a time.
//
// It keeps these rows in step with the entries of group 0:
//
//	child   one for each entry, under its parent, whether the parent is stored or not
//	leaf    one for each entry that has no child
//	scope   one for each entry with [FlagScopeRoot]
//
// so that any order of puts and removes leads to the same rows.
type Txn struct {
	View
	edit uint64
	bad  error // the first failed read: what was built since may be wrong, and is not published
	open bool  // neither published nor ended
}

// Err returns the first error of a read. A change that met one cannot be published.
func (t *Txn) Err() error { return t.bad }

// Publish makes the change the index's next version. It ends the change, also where it fails and nothing is changed.
func (t *Txn) Publish() error {
	if !t.open {
		panic("index: a change is published that was ended")
	}
	defer t.End()
	if t.bad != nil {
		return t.bad
	}
	ix := t.View.ix
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.closed {
		return ErrClosed
	}
	ix.rows.active, ix.counts = t.active, t.counters
	return nil
}

// End gives up what was not published. A second call does nothing.
func (t *Txn) End() {
	if !t.open {
		return
	}
	t.open = false
	t.Release()
	t.View.ix.write.Unlock()
}

func (t *Txn) set(key, val []byte) {
	// One allocation holds both; val must not be nil, which would be a tombstone.
	b := make([]byte, len(key)+len(val))
	copy(b[copy(b, key):], val)
	t.active = t.active.set(b[:len(key):len(key)], b[len(key):], t.edit)
}

// unset hides the row, or forgets it where no layer below has it: a block that is touched a thousand times between two
// checkpoints must not leave a thousand tombstones.
func (t *Txn) unset(c *cursor, key []byte) error {
	_, ok, err := c.getBelow(key)
	if err != nil {
		return t.fail(err)
	}
	if ok {
		t.active = t.active.set(bytes.Clone(key), nil, t.edit)
	} else {
		t.active = t.active.drop(key, t.edit)
	}
	return nil
}

func (t *Txn) fail(err error) error {
	if err != nil && t.bad == nil {
		t.bad = err
	}
	return err
}

// Load is [View.Get] with the entry's hashes.
func (t *Txn) Load(k kv.Key, group uint8) (e Entry, ok bool, err error) {
	c, err := t.begin()
	if err != nil {
		return e, false, t.fail(err)
	}
	defer c.release()
	return t.load(c, k, group)
}

// load reads an entry with its hashes, which are the caller's to keep.
func (t *Txn) load(c *cursor, k kv.Key, group uint8) (e Entry, ok bool, err error) {
	hashes, ok, err := c.entry(&e, k, group)
	e.Hashes = bytes.Clone(hashes)
	return e, ok, t.fail(err)
}

func (t *Txn) store(c *cursor, e *Entry) {
	var buf [entryBytes + maxHashBytes]byte
	hashes := e.Hashes
	if len(hashes) > maxHashBytes {
		hashes = hashes[:maxHashBytes]
	}
	if e.Group != 0 {
		hashes = nil
	}
	t.set(appendBlockKey(c.qbuf[:0], e.Key, e.Group), appendEntry(buf[:0], e, hashes))
}

func (t *Txn) hasChildren(c *cursor, k kv.Key) (bool, error) {
	ok, err := c.hasChildren(k)
	return ok, t.fail(err)
}

// Put inserts e, or replaces the entry of its key and group. The entry that is replaced leaves its Rank, Hits, Used and Hashes
// where e's are zero. A new child takes its parent out of the leaves; an entry whose children are there already, as in
// a rebuild, becomes no leaf.
func (t *Txn) Put(e Entry) error {
	if err := e.validate(); err != nil {
		return err
	}
	c, err := t.begin()
	if err != nil {
		return t.fail(err)
	}
	defer c.release()

	old, had, err := t.load(c, e.Key, e.Group)
	if err != nil {
		return err
	}
	if had {
		if e.Rank == 0 {
			e.Rank = old.Rank
		}
		if e.Hits == 0 {
			e.Hits = old.Hits
		}
		if e.Used == 0 {
			e.Used = old.Used
		}
		if len(e.Hashes) == 0 {
			e.Hashes = old.Hashes
		}
		t.counters.add(&old, -1, t.edit)
		if e.Group == 0 {
			if err := t.unlink(c, &old, &e); err != nil {
				return err
			}
		}
	}
	t.store(c, &e)
	t.counters.add(&e, 1, t.edit)
	if e.Group != 0 {
		return nil
	}

	// The parent was a leaf until now if it had no child.
	siblings, err := t.hasChildren(c, e.Parent)
	if err != nil {
		return err
	}
	if !siblings {
		if parent, ok, err := t.load(c, e.Parent, 0); err != nil {
			return err
		} else if ok {
			if err := t.unset(c, appendLeafKey(c.qbuf[:0], parent.Model, parent.Rank, parent.Key)); err != nil {
				return err
			}
		}
	}
	t.set(appendChildKey(c.qbuf[:0], e.Parent, e.Scope, e.Hashes, e.Key), empty)
	if e.Flags&FlagScopeRoot != 0 {
		t.set(appendScopeKey(c.qbuf[:0], e.Scope, e.Key), empty)
	}
	return t.relink(c, &e)
}

// relink gives e its leaf row if it has no children.
func (t *Txn) relink(c *cursor, e *Entry) error {
	children, err := t.hasChildren(c, e.Key)
	if err == nil && !children {
		t.set(appendLeafKey(c.qbuf[:0], e.Model, e.Rank, e.Key), empty)
	}
	return err
}

// unlink takes the child, leaf and scope rows of an entry of group 0 away, but for those that its replacement has too.
func (t *Txn) unlink(c *cursor, old, e *Entry) error {
	var kept [2][maxKeyBytes]byte
	drop := func(row func(b []byte, e *Entry) []byte) error {
		key := row(kept[0][:0], old)
		if e != nil && bytes.Equal(key, row(kept[1][:0], e)) {
			return nil
		}
		return t.unset(c, key)
	}
	err := drop(func(b []byte, e *Entry) []byte { return appendChildKey(b, e.Parent, e.Scope, e.Hashes, e.Key) })
	if err == nil {
		err = drop(func(b []byte, e *Entry) []byte { return appendLeafKey(b, e.Model, e.Rank, e.Key) })
	}
	if err == nil && old.Flags&FlagScopeRoot != 0 {
		err = drop(func(b []byte, e *Entry) []byte {
			if e.Flags&FlagScopeRoot == 0 {
				return nil
			}
			return appendScopeKey(b, e.Scope, e.Key)
		})
	}
	if err == nil && e != nil && e.Parent != old.Parent {
		err = t.orphaned(c, old)
	}
	return err
}

// orphaned makes the parent of an entry that went a leaf again if it was the last child. What was used last is the
// later of the two.
func (t *Txn) orphaned(c *cursor, e *Entry) error {
	siblings, err := t.hasChildren(c, e.Parent)
	if err != nil || siblings {
		return err
	}
	parent, ok, err := t.load(c, e.Parent, 0)
	if err != nil || !ok {
		return err
	}
	if e.Rank > parent.Rank || e.Used > parent.Used {
		parent.Rank, parent.Used = max(parent.Rank, e.Rank), max(parent.Used, e.Used)
		t.store(c, &parent)
	}
	t.set(appendLeafKey(c.qbuf[:0], parent.Model, parent.Rank, parent.Key), empty)
	return nil
}

// Remove takes an entry away; one that is not there is none to remove. When the last child of a stored parent goes, the
// parent becomes a leaf with the higher of the two ranks, last used at the later of the two times. Children are not touched: whoever removes a subtree removes
// its entries, in any order.
func (t *Txn) Remove(k kv.Key, group uint8) error {
	c, err := t.begin()
	if err != nil {
		return t.fail(err)
	}
	defer c.release()
	e, ok, err := t.load(c, k, group)
	if err != nil || !ok {
		return err
	}
	if err := t.unset(c, appendBlockKey(c.qbuf[:0], k, group)); err != nil {
		return err
	}
	t.counters.add(&e, -1, t.edit)
	if group != 0 {
		return nil
	}
	if err := t.unlink(c, &e, nil); err != nil {
		return err
	}
	return t.orphaned(c, &e)
}

// change rewrites one entry in place.
func (t *Txn) change(k kv.Key, group uint8, fn func(c *cursor, e *Entry) error) error {
	c, err := t.begin()
	if err != nil {
		return t.fail(err)
	}
	defer c.release()
	e, ok, err := t.load(c, k, group)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w: %s, group %d", ErrNotFound, k, group)
	}
	if err := fn(c, &e); err != nil {
		return err
	}
	t.store(c, &e)
	return nil
}

// Use sets where the block stands in the order of eviction, how often it was hit, and when it was used, unless that is 0. It returns
// [ErrNotFound] if there is no entry of group 0.
func (t *Txn) Use(k kv.Key, rank uint64, hits, used uint32) error {
	return t.change(k, 0, func(c *cursor, e *Entry) error {
		if rank != e.Rank {
			children, err := t.hasChildren(c, k)
			if err != nil {
				return err
			}
			if !children {
				if err := t.unset(c, appendLeafKey(c.qbuf[:0], e.Model, e.Rank, k)); err != nil {
					return err
				}
				t.set(appendLeafKey(c.qbuf[:0], e.Model, rank, k), empty)
			}
		}
		e.Rank, e.Hits = rank, hits
		if used != 0 {
			e.Used = used
		}
		return nil
	})
}

// SetFlags replaces an entry's flags, except [FlagScopeRoot], which is where the block stands and stays as it was put. It
// returns [ErrNotFound] if there is no such entry.
func (t *Txn) SetFlags(k kv.Key, group uint8, flags uint8) error {
	return t.change(k, group, func(_ *cursor, e *Entry) error {
		e.Flags = flags&^FlagScopeRoot | e.Flags&FlagScopeRoot
		return nil
	})
}

// SetLoc says that the record has moved. It returns [ErrNotFound] if there is no such entry.
func (t *Txn) SetLoc(k kv.Key, group uint8, loc Loc, seq uint64) error {
	return t.change(k, group, func(_ *cursor, e *Entry) error {
		was := *e
		e.Loc, e.Seq = loc, seq
		if err := e.validate(); err != nil {
			return err
		}
		t.counters.add(&was, -1, t.edit)
		t.counters.add(e, 1, t.edit)
		return nil
	})
}
