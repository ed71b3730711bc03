package index

import (
	"bytes"

	"github.com/cespare/xxhash/v2"
)

// node is a node of a persistent treap: an ordered map of rows that is never changed once it is published. Its shape
// follows from its keys alone, because a node's priority is the hash of its key.
//
// A change copies the nodes on its path, except for those that the same edit has made already: they carry its number
// and nobody else can see them.
type node struct {
	key         []byte
	val         []byte // nil: a tombstone, which hides the row in the layers below
	prio        uint64
	edit        uint64
	left, right *node
}

// find returns the node of that key.
func (n *node) find(key []byte) *node {
	for n != nil {
		switch c := bytes.Compare(key, n.key); {
		case c < 0:
			n = n.left
		case c > 0:
			n = n.right
		default:
			return n
		}
	}
	return nil
}

// ceil returns the first node whose key is at least key, or above it unless orEqual.
func (n *node) ceil(key []byte, orEqual bool) (best *node) {
	for n != nil {
		switch c := bytes.Compare(n.key, key); {
		case c > 0:
			best, n = n, n.left
		case c == 0 && orEqual:
			return n
		default:
			n = n.right
		}
	}
	return best
}

// below returns the last node whose key is below key.
func (n *node) below(key []byte) (best *node) {
	for n != nil {
		if bytes.Compare(n.key, key) < 0 {
			best, n = n, n.right
		} else {
			n = n.left
		}
	}
	return best
}

// walk calls fn for each node in order, until it returns false.
func (n *node) walk(fn func(key, val []byte) bool) bool {
	return n == nil || (n.left.walk(fn) && fn(n.key, n.val) && n.right.walk(fn))
}

// each is walk with a function that can fail, which ends it.
func (n *node) each(fn func(key, val []byte) error) (err error) {
	n.walk(func(key, val []byte) bool {
		err = fn(key, val)
		return err == nil
	})
	return err
}

// size counts the nodes.
func (n *node) size() int {
	if n == nil {
		return 0
	}
	return n.left.size() + 1 + n.right.size()
}

// own returns n if this edit may change it, else a copy.
func (n *node) own(edit uint64) *node {
	if n.edit == edit {
		return n
	}
	c := *n
	c.edit = edit
	return &c
}

// set returns the tree with key set to val. It keeps both slices.
func (n *node) set(key, val []byte, edit uint64) *node {
	return n.insert(&node{key: key, val: val, prio: xxhash.Sum64(key), edit: edit})
}

func (n *node) insert(x *node) *node {
	if n == nil {
		return x
	}
	if x.prio > n.prio {
		// x goes above n, so its key is not in n: it would have n's place or lie below a node of its own priority.
		x.left, x.right = n.split(x.key, x.edit)
		return x
	}
	n = n.own(x.edit)
	switch c := bytes.Compare(x.key, n.key); {
	case c < 0:
		n.left = n.left.insert(x)
	case c > 0:
		n.right = n.right.insert(x)
	default:
		n.val = x.val
	}
	return n
}

// split returns the nodes below key and those above it; key itself must not be there.
func (n *node) split(key []byte, edit uint64) (lo, hi *node) {
	if n == nil {
		return nil, nil
	}
	n = n.own(edit)
	if bytes.Compare(n.key, key) < 0 {
		n.right, hi = n.right.split(key, edit)
		return n, hi
	}
	lo, n.left = n.left.split(key, edit)
	return lo, n
}

// drop returns the tree without key.
func (n *node) drop(key []byte, edit uint64) *node {
	if n.find(key) == nil {
		return n
	}
	return n.cut(key, edit)
}

func (n *node) cut(key []byte, edit uint64) *node {
	c := bytes.Compare(key, n.key)
	if c == 0 {
		return join(n.left, n.right, edit)
	}
	n = n.own(edit)
	if c < 0 {
		n.left = n.left.cut(key, edit)
	} else {
		n.right = n.right.cut(key, edit)
	}
	return n
}

// join returns the tree of both; every key of lo is below every key of hi.
func join(lo, hi *node, edit uint64) *node {
	switch {
	case lo == nil:
		return hi
	case hi == nil:
		return lo
	case lo.prio >= hi.prio:
		lo = lo.own(edit)
		lo.right = join(lo.right, hi, edit)
		return lo
	default:
		hi = hi.own(edit)
		hi.left = join(lo, hi.left, edit)
		return hi
	}
}
