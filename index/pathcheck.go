package index

import (
	"bytes"
	"fmt"
)

// checkPaths looks at all pages that bbolt may touch in the transaction, because it would not survive a damaged one: those
// on the way to each key, those that it may merge them with, which are their neighbours, and the list of free pages.
func (j *job) checkPaths() error {
	s := j.base
	check := pathCheck{s: s, seen: make([]uint8, s.meta.pages)}
	return s.file.contain("read", func() error {
		if _, err := s.checkFree(); err != nil {
			return err
		}
		return j.changes(func(key, _ []byte) error { return check.path(key) })
	})
}

type pathCheck struct {
	s    *snapshot
	seen []uint8 // of each page, a set of the constants below
}

const (
	seenPage = 1 << iota
	seenLeftSpine
	seenRightSpine
)

func (c *pathCheck) path(key []byte) error {
	id, lo, hi := c.s.root, []byte(nil), []byte(nil)
	for range maxDepth {
		p, err := c.page(id, lo, hi)
		if err != nil || p.leaf {
			return err
		}
		i, exact, _ := p.search(key) // the page is checked: all its elements lie in it
		if !exact && i > 0 {
			i--
		}
		if i > 0 {
			if err := c.spine(&p, i-1, hi, seenRightSpine); err != nil {
				return err
			}
		}
		if i+1 < p.count {
			if err := c.spine(&p, i+1, hi, seenLeftSpine); err != nil {
				return err
			}
		}
		id, lo, hi = fence(&p, i, hi)
	}
	return c.s.bad(id, "tree", fmt.Sprintf("more than %d levels", maxDepth))
}

// fence returns a child and what its keys lie between.
func fence(p *page, i int, hi []byte) (id uint64, lo, below []byte) {
	lo, _ = p.row(i)
	if i+1 < p.count {
		hi, _ = p.row(i + 1)
	}
	return p.child(i), lo, hi
}

// spine looks at the first or last pages of a subtree, from its top to its leaf.
func (c *pathCheck) spine(p *page, i int, hi []byte, side uint8) error {
	id, lo, hi := fence(p, i, hi)
	for range maxDepth {
		p, err := c.page(id, lo, hi)
		if err != nil || p.leaf || c.seen[id]&side != 0 {
			return err
		}
		c.seen[id] |= side
		at := 0
		if side == seenRightSpine {
			at = p.count - 1
		}
		id, lo, hi = fence(&p, at, hi)
	}
	return c.s.bad(id, "tree", fmt.Sprintf("more than %d levels", maxDepth))
}

func (c *pathCheck) page(id uint64, lo, hi []byte) (page, error) {
	p, err := c.s.page(id)
	if err != nil {
		return p, err
	}
	if c.seen[id]&seenPage == 0 {
		if _, what := p.check(); what != "" {
			return p, c.s.bad(id, "page", what)
		}
		c.seen[id] |= seenPage
	}
	first, _ := p.row(0)
	last, _ := p.row(p.count - 1)
	if (lo != nil && bytes.Compare(first, lo) < 0) || (hi != nil && bytes.Compare(last, hi) >= 0) {
		return p, c.s.bad(id, "page", "its keys do not belong below its parent's")
	}
	return p, nil
}
