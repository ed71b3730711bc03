package index

import (
	"bytes"
	"sync"
)

// layers is one version of all rows: the active overlay over the frozen one over the bbolt snapshot. The newest layer that
// knows a key has the say; a tombstone there hides the row.
type layers struct {
	active *node
	frozen *node
	base   *snapshot // nil for an index without a file
}

// cursor walks the rows of layers in order. It holds no treap node: each step looks for the neighbour of its key, so that
// a [Txn] may change the rows it walks over. Cursors are pooled; key and val are valid until the next move.
type cursor struct {
	l    *layers
	tree treeCursor // position in the base, at or beyond key in the direction of the walk
	more bool       // the tree has a row there

	within []byte // the walk is over the rows that begin so, and does not pass what was removed beyond them

	key, val []byte // the current row
	kbuf     [maxKeyBytes]byte
	qbuf     [maxKeyBytes]byte // for the caller to make a key in
}

var cursors = sync.Pool{New: func() any { return new(cursor) }}

func (l *layers) cursor() *cursor {
	c := cursors.Get().(*cursor)
	c.l = l
	c.tree.reset(l.base)
	return c
}

func (c *cursor) release() {
	c.l, c.key, c.val, c.within = nil, nil, nil, nil
	c.tree.reset(nil)
	cursors.Put(c)
}

// get finds one row.
func (c *cursor) get(key []byte) (val []byte, ok bool, err error) {
	if n := c.l.active.find(key); n != nil {
		return n.val, n.val != nil, nil
	}
	return c.getBelow(key)
}

// getBelow finds one row in the layers beneath the active overlay.
func (c *cursor) getBelow(key []byte) (val []byte, ok bool, err error) {
	if n := c.l.frozen.find(key); n != nil {
		return n.val, n.val != nil, nil
	}
	if c.l.base == nil {
		return nil, false, nil
	}
	if ok, err = c.tree.seek(key); err != nil || !ok || !bytes.Equal(c.tree.key, key) {
		return nil, false, err
	}
	return c.tree.val, true, nil
}

// seek goes to the first row at or after key, of those that begin with within, as key does.
func (c *cursor) seek(key, within []byte) (ok bool, err error) {
	c.more, c.within = false, within
	if c.l.base != nil {
		if c.more, err = c.tree.seek(key); err != nil {
			return false, err
		}
	}
	return c.ascend(key, true)
}

// next goes to the row after the current one.
func (c *cursor) next() (ok bool, err error) {
	key := c.kbuf[:copy(c.kbuf[:], c.key)]
	if err := c.pass(key); err != nil {
		return false, err
	}
	return c.ascend(key, false)
}

// pass moves the tree beyond key.
func (c *cursor) pass(key []byte) (err error) {
	if c.more && bytes.Compare(c.tree.key, key) <= 0 {
		c.more, err = c.tree.next()
	}
	return err
}

func (c *cursor) ascend(key []byte, orEqual bool) (bool, error) {
	for {
		best := c.l.active.ceil(key, orEqual)
		if f := c.l.frozen.ceil(key, orEqual); f != nil && (best == nil || bytes.Compare(f.key, best.key) < 0) {
			best = f
		}
		if c.more && (best == nil || bytes.Compare(c.tree.key, best.key) < 0) {
			return c.at(c.tree.key, c.tree.val), nil
		}
		if best == nil || best.val == nil && !bytes.HasPrefix(best.key, c.within) {
			return false, nil
		}
		if best.val != nil {
			return c.at(best.key, best.val), nil
		}
		key, orEqual = best.key, false
		if err := c.pass(key); err != nil {
			return false, err
		}
	}
}

// at makes a row the current one, if the walk goes so far.
func (c *cursor) at(key, val []byte) bool {
	c.key, c.val = key, val
	return bytes.HasPrefix(key, c.within)
}

// seekBelow goes to the last row before key, of those that begin with within, as key does.
func (c *cursor) seekBelow(key, within []byte) (ok bool, err error) {
	c.more, c.within = false, within
	if c.l.base != nil {
		if c.more, err = c.tree.seekBelow(key); err != nil {
			return false, err
		}
	}
	for {
		best := c.l.active.below(key)
		if f := c.l.frozen.below(key); f != nil && (best == nil || bytes.Compare(f.key, best.key) > 0) {
			best = f
		}
		if c.more && (best == nil || bytes.Compare(c.tree.key, best.key) > 0) {
			return c.at(c.tree.key, c.tree.val), nil
		}
		if best == nil || best.val == nil && !bytes.HasPrefix(best.key, within) {
			return false, nil
		}
		if best.val != nil {
			return c.at(best.key, best.val), nil
		}
		key = best.key
		if c.more && bytes.Equal(c.tree.key, key) {
			if c.more, err = c.tree.prev(); err != nil {
				return false, err
			}
		}
	}
}

// scan calls fn for each row at or after from whose key starts with prefix, until it returns false. The slices are valid
// during the call.
func (l *layers) scan(prefix, from []byte, fn func(key, val []byte) (bool, error)) error {
	c := l.cursor()
	defer c.release()
	ok, err := c.seek(from, prefix)
	for ; ok && err == nil; ok, err = c.next() {
		if more, err := fn(c.key, c.val); err != nil || !more {
			return err
		}
	}
	return err
}
