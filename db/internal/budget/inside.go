package budget

import "sync/atomic"

// Inside is a budget as the store's tests see it.
type Inside struct{ b *Budget }

// Inside is for tests.
func (b *Budget) Inside() Inside { return Inside{b} }

// Measured says whether the files were looked at.
func (i Inside) Measured() *atomic.Bool { return &i.b.measured }

// Usage is what the files are counted to occupy, what puts under way have reserved of it, and the blocks that they are about to add.
func (i Inside) Usage() (used, reserved, blocks int64) {
	u := &i.b.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.usedLocked(), u.reserved, u.blocks
}

// Take is a reservation up to a limit.
func (i Inside) Take(bytes, limit int64) bool { return i.b.usage.reserve(bytes, limit) }
