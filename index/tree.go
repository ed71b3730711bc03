package index

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime/debug"
)

// treeCursor walks the rows of a snapshot. It finds damage in what it passes:
//
//   - the checksum of a row covers its key, so a row that is found is the one that was written;
//   - a row is called missing, or next to another, only if the rows on both sides of its place are intact and in order, and
//     the keys of every page on the way lie between those that its parent has beside it.
type treeCursor struct {
	s      *snapshot
	depth  int
	deep   int // the deepest that the stack was, to be cleared
	fenced int // so many pages on the stack have been compared with their parents
	stack  [maxDepth]step

	key, val []byte // the current row, in buf
	buf      [maxKeyBytes + maxPayloadBytes]byte
}

type step struct {
	page
	i int
}

func (c *treeCursor) reset(s *snapshot) {
	clear(c.stack[:c.deep]) // no pointers into a map that may go away
	c.s, c.depth, c.deep, c.fenced, c.key, c.val = s, 0, 0, 0, nil, nil
}

// guard contains faults and, should a check be missing, panics.
func (c *treeCursor) guard(err *error, old bool) {
	debug.SetPanicOnFault(old)
	if r := recover(); r != nil {
		*err = c.s.file.panicked("read", r)
	}
}

// seek goes to the first row at or after key. There always is one, but behind the last row of all.
func (c *treeCursor) seek(key []byte) (ok bool, err error) {
	defer c.guard(&err, debug.SetPanicOnFault(true))
	return c.find(key)
}

// seekBelow goes to the last row before key.
func (c *treeCursor) seekBelow(key []byte) (ok bool, err error) {
	defer c.guard(&err, debug.SetPanicOnFault(true))
	if ok, err = c.find(key); err != nil {
		return false, err
	}
	if !ok {
		return c.current()
	}
	return c.move(-1)
}

// next goes to the row after the current one.
func (c *treeCursor) next() (ok bool, err error) {
	defer c.guard(&err, debug.SetPanicOnFault(true))
	return c.move(1)
}

// prev goes to the row before the current one.
func (c *treeCursor) prev() (ok bool, err error) {
	defer c.guard(&err, debug.SetPanicOnFault(true))
	return c.move(-1)
}

// push enters a page.
func (c *treeCursor) push(id uint64) (*step, error) {
	if c.depth == maxDepth {
		return nil, c.s.bad(id, "tree", fmt.Sprintf("more than %d levels", maxDepth))
	}
	p, err := c.s.page(id)
	if err != nil {
		return nil, err
	}
	st := &c.stack[c.depth]
	st.page, st.i = p, 0
	c.depth++
	c.deep = max(c.deep, c.depth)
	return st, nil
}

// fence compares the pages on the stack with what their parents say that they hold.
func (c *treeCursor) fence() error {
	for d := max(c.fenced, 1); d < c.depth; d++ {
		st, parent := &c.stack[d], &c.stack[d-1]
		first, last, lo := st.key(0), st.key(st.count-1), parent.key(parent.i)
		ok := first != nil && last != nil && lo != nil && bytes.Compare(first, lo) >= 0
		for up := d - 1; ok && up >= 0; up-- {
			if parent = &c.stack[up]; parent.i+1 < parent.count {
				hi := parent.key(parent.i + 1)
				ok = hi != nil && bytes.Compare(last, hi) < 0
				break
			}
		}
		if !ok {
			return c.s.bad(st.id, "page", "its keys do not belong below its parent's")
		}
	}
	c.fenced = c.depth
	return nil
}

// find is seek. The cursor stands at the row, or at the last one if there is none.
func (c *treeCursor) find(key []byte) (ok bool, err error) {
	c.depth, c.fenced = 0, 0
	id := c.s.root
	for {
		st, err := c.push(id)
		if err != nil {
			return false, err
		}
		i, exact, ok := st.search(key)
		if !ok {
			return false, c.s.bad(st.id, "page", "an element lies outside of the page")
		}
		if st.leaf {
			if st.i = i; exact {
				return c.current()
			}
			return c.between(st, key)
		}
		if !exact && i > 0 {
			i-- // the child whose first key is the last one not above key
		}
		st.i, id = i, st.child(i)
	}
}

// between handles a key that is not in the tree: the rows on both sides of its place must be intact, and lie on their
// sides of it.
func (c *treeCursor) between(st *step, key []byte) (ok bool, err error) {
	if err := c.fence(); err != nil {
		return false, err
	}
	if st.i > 0 {
		st.i--
		ok, err = c.current()
	} else {
		ok, err = c.step(-1)
	}
	if err != nil {
		return false, err
	}
	if !ok || bytes.Compare(c.key, key) >= 0 {
		// Before the first row of all there is none; but nobody looks there.
		return false, c.s.bad(st.id, "tree", "rows are missing or out of order")
	}
	if ok, err = c.move(1); err != nil || !ok {
		return false, err
	}
	if bytes.Compare(c.key, key) <= 0 {
		return false, c.s.bad(st.id, "tree", "rows are out of order")
	}
	return true, nil
}

// move steps to the row beside the current one, which must lie on that side of it.
func (c *treeCursor) move(by int) (bool, error) {
	var was [maxKeyBytes]byte
	n := copy(was[:], c.key)
	ok, err := c.step(by)
	if ok && bytes.Compare(c.key, was[:n]) != by {
		return false, c.s.bad(c.stack[c.depth-1].id, "tree", "rows are out of order")
	}
	return ok, err
}

// step moves to the row beside the current position. If there is none, the position stays.
func (c *treeCursor) step(by int) (ok bool, err error) {
	d := c.depth - 1
	for d >= 0 && (c.stack[d].i+by < 0 || c.stack[d].i+by >= c.stack[d].count) {
		d--
	}
	if d < 0 {
		return false, c.fence()
	}
	if d < c.depth-1 || c.fenced < c.depth {
		if err := c.fence(); err != nil { // of the place that we leave
			return false, err
		}
	}
	c.depth, c.fenced = d+1, min(c.fenced, d+1)
	st := &c.stack[d]
	st.i += by
	for !st.leaf {
		if st, err = c.push(st.child(st.i)); err != nil {
			return false, err
		}
		if by < 0 {
			st.i = st.count - 1
		}
	}
	if err := c.fence(); err != nil {
		return false, err
	}
	return c.current()
}

// current copies the row at the cursor out of the map and checks it.
func (c *treeCursor) current() (bool, error) {
	st := &c.stack[c.depth-1]
	key, val := st.row(st.i)
	if key == nil || len(key) > maxKeyBytes || len(val) < sumBytes || len(val) > maxValueBytes || st.flags(st.i) != 0 {
		return false, c.s.bad(st.id, fmt.Sprintf("row %d of the page", st.i), "wrong lengths")
	}
	k := copy(c.buf[:], key)
	n := k + copy(c.buf[k:], val[sumBytes:])
	if sum := binary.LittleEndian.Uint64(val); sum != sumRow(c.buf[:n]) {
		return false, c.s.bad(st.id, fmt.Sprintf("row %d of the page", st.i), fmt.Sprintf("checksum %016x", sum))
	}
	c.key, c.val = c.buf[:k:k], c.buf[k:n:n]
	return true, nil
}
