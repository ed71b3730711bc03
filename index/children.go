package index

import "github.com/dormousekv/dormouse/kv"

// ChildrenLike calls fn for the children of parent in scope whose token hashes begin with hashes, until it returns false.
// Hashes are hints: compare tokens.
func (v *View) ChildrenLike(parent kv.Key, scope kv.ScopeID, hashes []byte, fn func(child kv.Key) bool) error {
	prefix := appendChildSeek(nil, parent, scope, hashes[:min(len(hashes), maxHashBytes)])
	return v.children(prefix, prefix, func(_ kv.Key, _ kv.ScopeID, _ []byte, k kv.Key) bool { return fn(k) })
}

// ChildRows calls fn for every block of the store, children of one parent after each other, until it returns false.
// hashes is valid only during the call.
func (v *View) ChildRows(fn func(parent kv.Key, scope kv.ScopeID, hashes []byte, child kv.Key) bool) error {
	prefix := []byte{tableChild}
	return v.children(prefix, prefix, fn)
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
	const prefix = childKeyBytes - 2 - 16
	want := appendChildSeek(make([]byte, 0, maxKeyBytes), parent, scope, hashes)
	at := append(make([]byte, 0, maxKeyBytes), want...)
	at = append(at, 0, 1) // behind the children with just these hashes
	for {
		ok, err := c.seekBelow(at, want[:prefix])
		if err != nil || !ok {
			return err
		}
		_, _, have, k, good := splitChildKey(c.key)
		if !good {
			return c.l.badRow(c.key, "child row")
		}
		// The rows below at hold no longer prefix than what this one shares.
		shared := 0
		for shared+2 <= min(len(have), len(want)-prefix) && have[shared] == want[prefix+shared] && have[shared+1] == want[prefix+shared+1] {
			shared += 2
		}
		if shared < len(have) {
			at = append(append(at[:0], want[:prefix+shared]...), 0, 1)
			continue
		}
		at = append(at[:0], c.key...)
		if !fn(k, len(have)/2) {
			return nil
		}
	}
}
