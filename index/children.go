package index

import "github.com/dormousekv/dormouse/kv"

// ChildrenLike calls fn for the children of parent in scope whose token hashes begin with hashes, until it returns false.
// Hashes are hints: compare tokens.
func (v *View) ChildrenLike(parent kv.Key, scope kv.ScopeID, hashes []byte, fn func(child kv.Key) bool) error {
	prefix := appendChildSeek(nil, parent, scope, hashes[:min(len(hashes), maxHashBytes)])
	return v.rows(prefix, prefix, func(key, _ []byte) (bool, error) {
		_, _, _, k, ok := splitChildKey(key)
		if !ok {
			return false, v.badRow(key, "child row")
		}
		return fn(k), nil
	})
}

// ChildRows calls fn for every block of the store, children of one parent after each other, until it returns false.
// hashes is valid only during the call.
func (v *View) ChildRows(fn func(parent kv.Key, scope kv.ScopeID, hashes []byte, child kv.Key) bool) error {
	prefix := []byte{tableChild}
	return v.rows(prefix, prefix, func(key, _ []byte) (bool, error) {
		parent, scope, hashes, k, ok := splitChildKey(key)
		if !ok {
			return false, v.badRow(key, "child row")
		}
		return fn(parent, scope, hashes, k), nil
	})
}
