package engine

import (
	"fmt"
	"math"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// Reserve takes room for a record of so many bytes, as one of so many new blocks, if there is some without evicting.
func (e *Engine) Reserve(bytes, blocks int64) bool {
	e.measureOnce()
	if !e.diskHas(bytes, e.diskReserve()) || !e.space.reserve(bytes, e.o.Budget-e.reserveBytes()) {
		return false
	}
	if e.reserveBlocks(blocks) {
		return true
	}
	e.space.giveUp(bytes, 0)
	return false
}

func (e *Engine) reserveBlocks(blocks int64) bool {
	u := &e.space
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.o.MaxBlocks > 0 && blocks > 0 && e.Counts().Blocks+u.blocks+blocks > e.o.MaxBlocks {
		return false
	}
	u.blocks += blocks
	return true
}

// diskHas reports whether the file system can take so many bytes and leave what is to be left free.
func (e *Engine) diskHas(bytes, leave int64) bool {
	free, ok := e.diskFree()
	return !ok || free >= bytes+leave
}

// diskReserve is what puts leave free on the file system: for others, or what a checkpoint of this store needs, if that is more.
func (e *Engine) diskReserve() int64 { return max(e.o.MinFree, e.reserveBytes()) }

// diskFree is what is free on the file system; ok is false if that is not known.
func (e *Engine) diskFree() (bytes int64, ok bool) {
	free, _, err := e.FS.Space(e.Dir)
	return int64(min(free, math.MaxInt64/2)), err == nil
}

// coming are the bytes of what is dead and not yet destroyed. They come back when the log is synced, and no match can see them any more.
// What open matches keep, because it was deleted, replaced or moved under them, is not among them: how long they stay open nobody knows. What
// was evicted always is, so that nobody evicts twice for the same room. The caller holds ckptMu; else what is being destroyed may count
// twice, or not at all.
func (e *Engine) coming() int64 {
	_, waiting := e.Catalog.Waiting()
	_, kept := e.Segments.Kept()
	return e.Segments.Held() - kept + waiting
}

// lacking is what must go, beyond what is on its way out already, before so many bytes and blocks fit. The caller holds ckptMu.
func (e *Engine) lacking(bytes, blocks int64) evictGoal {
	lack := evictGoal{bytes: e.over(bytes) - e.coming()}
	if e.o.MaxBlocks > 0 && blocks > 0 {
		lack.blocks = e.Counts().Blocks + e.space.unpublished() + blocks - e.o.MaxBlocks
	}
	return lack
}

// over is how much there is not room for of so many bytes just now, in the budget or on the disk.
func (e *Engine) over(bytes int64) int64 {
	over := e.space.used() + bytes + e.reserveBytes() - e.o.Budget
	if free, ok := e.diskFree(); ok {
		over = max(over, bytes+e.diskReserve()-free)
	}
	return over
}

// Hopeless returns an error if so many new bytes of a prompt, or all its blocks, would not fit if nothing else were stored.
func (e *Engine) Hopeless(bytes, blocks int64) error {
	if e.o.MaxBlocks > 0 && blocks > e.o.MaxBlocks {
		return &errFull{fmt.Sprintf("the prompt has %d blocks, and at most %d are stored (MaxBlocks)", blocks, e.o.MaxBlocks)}
	}
	const little = 16 << 20 // what is less, and not of a small budget, is not worth asking the file system
	if bytes <= min(little, e.o.Budget/2) {
		return nil
	}
	e.measureOnce()
	if e.hopeless(bytes) {
		return &errFull{fmt.Sprintf("the prompt takes %d bytes more at least, which is more than a budget of %d and the disk have if nothing else is stored", bytes, e.o.Budget)}
	}
	return nil
}

// hopeless reports whether a record of so many bytes would not fit if nothing else were stored: evicting is no use then.
func (e *Engine) hopeless(bytes int64) bool {
	least := e.logReserve() + minBloomBytes
	if bytes > e.o.Budget-least {
		return true
	}
	free, ok := e.diskFree()
	return ok && free+e.space.used() < bytes+max(e.o.MinFree, least)
}

// Room is what is free on the file system, -1 if that is not known; what is left free of that; and whether for this reason nothing can be stored,
// even if all that is stored was evicted.
func (e *Engine) Room() (free, kept int64, full bool) {
	free, ok := e.diskFree()
	if !ok {
		free = -1
	}
	return free, e.diskReserve(), !e.ReadOnly() && e.hopeless(1)
}

// errFull is the vfs.ErrNoSpace of a store in which nothing more may go.
type errFull struct{ why string }

func (f *errFull) Error() string { return fmt.Sprintf("%v: %s", vfs.ErrNoSpace, f.why) }
func (f *errFull) Unwrap() error { return vfs.ErrNoSpace }

func (e *Engine) full(bytes, blocks int64) error {
	n, held := e.Segments.Pending()
	why := fmt.Sprintf("%d bytes are needed, %d of a budget of %d are used, and nothing more can be evicted", bytes, e.space.used(), e.o.Budget)
	if n > 0 {
		why += fmt.Sprintf(" (%s of %s cannot be freed before open matches are closed)", damage.Count(held, "byte"), damage.Count(n, "deleted record"))
	}
	if pinned := e.Catalog.Pinned(); pinned > 0 {
		why += fmt.Sprintf("; pinned refs keep %s and what is before them", damage.Count(int64(pinned), "block"))
	}
	if used, _ := e.Pins.Counts(); used > 0 {
		why += fmt.Sprintf("; open matches, and puts under way, keep %s and what is before them", damage.Count(int64(used), "block"))
	}
	if stored := e.Counts().Blocks + e.space.unpublished(); e.o.MaxBlocks > 0 && stored+blocks > e.o.MaxBlocks {
		why += fmt.Sprintf("; %d blocks are stored, of at most %d (MaxBlocks)", stored, e.o.MaxBlocks)
	}
	if free, ok := e.diskFree(); ok && free < bytes+e.diskReserve() {
		why += fmt.Sprintf("; %d are free on the file system, and %d of them are kept free", free, e.diskReserve())
	}
	return &errFull{why}
}

// measureOnce makes up for what Open left out: asking for the size of every segment takes its time.
func (e *Engine) measureOnce() {
	if !e.measured.Load() {
		e.Measure()
	}
}

// Measure asks the file system what the store's files occupy.
func (e *Engine) Measure() int64 {
	if !e.ReadOnly() {
		e.countSessions()
	}
	e.measuring.Lock() // an earlier look must not be what is remembered in the end
	defer e.measuring.Unlock()
	bloom := int64(minBloomBytes)
	total := e.space.measure(func() int64 {
		total := e.Segments.Allocated()
		for _, name := range []string{folder.FormatName, folder.LockName, folder.IndexName, folder.BloomName} {
			if info, err := e.FS.Stat(e.Path(name)); err == nil {
				total += info.Allocated
				switch name {
				case folder.IndexName:
					e.indexBytes.Store(info.Allocated)
				case folder.BloomName:
					bloom = max(bloom, info.Allocated)
				}
			}
		}
		return total
	})
	e.bloomBytes.Store(bloom)
	e.measured.Store(true)
	most := total
	for _, name := range []string{folder.IndexName, folder.BloomName} { // what becomes of them is in the reserve
		if info, err := e.FS.Stat(e.Path(name + ".tmp")); err == nil {
			most += info.Allocated
		}
	}
	e.Count.RaiseHigh(most)
	return total
}
