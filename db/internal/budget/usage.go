package budget

import (
	"github.com/dormousekv/dormouse/internal/lock"
)

// usage counts what the store's files occupy: as they were last measured, by how much the segments have grown since, and what
// puts under way have reserved.
type usage struct {
	grown   func() int64 // bytes that were allocated for segments in all, those ahead of records included
	extents func() int64 // bytes that segments may still take without an append
	log     func() int64 // bytes that log and session files occupy now

	mu       lock.Mutex[lock.Usage]
	measured int64 // allocated bytes of all other files, when they were last looked at, and what extents might take then
	base     int64 // grown, when that measuring began
	reserved int64 // bytes that puts are about to append
	blocks   int64 // blocks that puts have reserved and not yet published
}

func (u *usage) usedLocked() int64 { return u.measured + u.grown() - u.base + u.log() + u.reserved }

func (u *usage) used() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.usedLocked()
}

// reserve takes so many bytes for an append, if the files stay within limit then. giveUp ends it.
func (u *usage) reserve(bytes, limit int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.usedLocked()+bytes > limit {
		return false
	}
	u.reserved += bytes
	return true
}

// giveUp ends a reservation, whether it was used or not, or that of blocks that are published.
func (u *usage) giveUp(bytes, blocks int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.reserved -= bytes
	u.blocks -= blocks
}

// unpublished are the blocks that puts under way are about to add.
func (u *usage) unpublished() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.blocks
}

// measure lets look find out what the files occupy that log does not count, and returns that with what it does; appends go on meanwhile.
func (u *usage) measure(look func() int64) int64 {
	base, extents := u.grown(), u.extents() // of what is synced meanwhile, look may see them, too
	total := look()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.measured, u.base = total+extents, base
	return total + u.log()
}
