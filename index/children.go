package index

import "github.com/dormousekv/dormouse/kv"

// childHashesAt is where the hashes begin in a child row.
const childHashesAt = childKeyBytes - 2 - 16

// Neighbors returns the children of parent in scope that are adjacent to hashes, the token hashes of what a prompt goes
// on with: before sorts below them, after at or above. No child of that scope agrees in more leading tokens than the better of the
// two. Hashes are hints: compare tokens.
func (v *View) Neighbors(parent kv.Key, scope kv.ScopeID, hashes []byte) (before, after kv.Key, okBefore, okAfter bool, err error) {
	c, err := v.begin()
	if err != nil {
		return
	}
	defer c.release()
	q := appendChildSeek(c.qbuf[:0], parent, scope, hashes)

	// neighbor takes the row apart that the cursor has come to.
	neighbor := func(ok bool, err error) (kv.Key, bool, error) {
		if err != nil || !ok {
			return kv.Key{}, false, err
		}
		_, _, _, k, good := splitChildKey(c.key)
		if !good {
			return k, false, c.l.badRow(c.key, "child row")
		}
		return k, true, nil
	}
	if after, okAfter, err = neighbor(c.seek(q, q[:childHashesAt])); err != nil {
		return
	}
	before, okBefore, err = neighbor(c.seekBelow(q, q[:childHashesAt]))
	return
}

// StoredPrefixes calls fn for the children of parent in scope all of whose token hashes begin hashes, the longest first, until
// it returns false: the blocks that a prompt with those hashes may have grown out of. hashed is how many tokens of the child
// the index has hashes of, [MaxHashTokens] for any longer block. Hashes are hints: compare keys. fn may change a Txn.
func (v *View) StoredPrefixes(parent kv.Key, scope kv.ScopeID, hashes []byte, fn func(child kv.Key, hashed int) bool) error {
	c, err := v.begin()
	if err != nil {
		return err
	}
	defer c.release()
	row := appendChildSeek(make([]byte, 0, maxKeyBytes), parent, scope, hashes)
	want := row[childHashesAt:]
	at := append(make([]byte, 0, maxKeyBytes), row...)
	at = append(at, 0, 1) // behind the children with just these hashes
	for {
		ok, err := c.seekBelow(at, row[:childHashesAt])
		if err != nil || !ok {
			return err
		}
		_, _, have, k, good := splitChildKey(c.key)
		if !good {
			return c.l.badRow(c.key, "child row")
		}
		// The rows below at hold no longer prefix than what this one shares.
		shared := 0
		for shared+2 <= min(len(have), len(want)) && have[shared] == want[shared] && have[shared+1] == want[shared+1] {
			shared += 2
		}
		if shared < len(have) {
			at = append(append(at[:0], row[:childHashesAt+shared]...), 0, 1)
			continue
		}
		at = append(at[:0], c.key...)
		if !fn(k, len(have)/2) {
			return nil
		}
	}
}

// ChildrenLike calls fn for the children of parent in scope whose token hashes begin with hashes, until it returns false.
// Hashes are hints: compare tokens.
func (v *View) ChildrenLike(parent kv.Key, scope kv.ScopeID, hashes []byte, fn func(child kv.Key) bool) error {
	prefix := appendChildSeek(nil, parent, scope, hashes)
	return v.children(prefix, prefix, func(_ kv.Key, _ kv.ScopeID, _ []byte, k kv.Key) bool { return fn(k) })
}

// ChildRows calls fn for every block of the store, children of one parent after each other, until it returns false.
// hashes is valid only during the call.
func (v *View) ChildRows(fn func(parent kv.Key, scope kv.ScopeID, hashes []byte, child kv.Key) bool) error {
	prefix := []byte{tableChild}
	return v.children(prefix, prefix, fn)
}

// ChildPos is a place among the children of a block, in the order of [View.Children]. The zero value is the beginning.
type ChildPos struct{ row []byte }

// Children calls fn for each child of parent, of every scope, until it returns false: for those from the place from on (nil: for all).
// Afterwards that is the place of the first of them.
func (v *View) Children(parent kv.Key, from *ChildPos, fn func(child kv.Key, scope kv.ScopeID) bool) error {
	prefix := appendChildPrefix(nil, parent)
	start := prefix
	if from != nil && from.row != nil {
		start, from.row = from.row, nil
	}
	return v.children(prefix, start, func(_ kv.Key, scope kv.ScopeID, hashes []byte, k kv.Key) bool {
		if from != nil && from.row == nil {
			from.row = appendChildKey(nil, parent, scope, hashes, k)
		}
		return fn(k, scope)
	})
}

// children calls fn for the child rows that begin with prefix, from one on, until it returns false.
func (v *View) children(prefix, from []byte, fn func(parent kv.Key, scope kv.ScopeID, hashes []byte, child kv.Key) bool) error {
	return v.rows(prefix, from, func(key, _ []byte) (bool, error) {
		parent, scope, hashes, k, ok := splitChildKey(key)
		if !ok {
			return false, v.badRow(key, "child row")
		}
		return fn(parent, scope, hashes, k), nil
	})
}

// HasChildren reports whether parent has a child of any scope.
func (v *View) HasChildren(parent kv.Key) (bool, error) {
	c, err := v.begin()
	if err != nil {
		return false, err
	}
	defer c.release()
	return c.hasChildren(parent)
}

// hasChildren looks from the end: deletions remove children from the front, and what they removed is not passed.
func (c *cursor) hasChildren(parent kv.Key) (bool, error) {
	q := appendChildPrefix(c.qbuf[:0], parent)
	for i := len(q); i < len(c.qbuf); i++ {
		c.qbuf[i] = 0xff
	}
	return c.seekBelow(c.qbuf[:], q)
}
