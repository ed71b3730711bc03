package budget

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/filter"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/journals"
	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/db/internal/tally"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// Options are the bounds of a store.
type Options struct {
	FS        vfs.FS
	Dir       string
	Bytes     int64 // that all files may occupy
	MinFree   int64 // bytes that stay free on the file system
	MaxBlocks int64 // 0: no bound
	LogAhead  int64 // bytes that a file of the log reserves ahead
}

// Budget is the room of one store. It is safe for concurrent use, once Begin was called.
type Budget struct {
	o        Options
	ledger   *commit.Ledger
	journals *journals.Set
	pins     *lease.Pins
	count    *tally.Counters

	usage       usage
	measured    atomic.Bool
	measuring   lock.Mutex[lock.Measure] // one look at the files at a time
	indexBytes  atomic.Int64             // of index.db, when it was last measured
	filterBytes atomic.Int64             // of the Bloom filter's file, or of the least one
}

// New returns the budget of a store that is being opened. Until Begin nothing but Step and Ahead may be called.
func New(o Options) *Budget { return &Budget{o: o} }

// Begin tells the budget whose files it counts.
func (b *Budget) Begin(l *commit.Ledger, j *journals.Set, pins *lease.Pins, count *tally.Counters) {
	b.ledger, b.journals, b.pins, b.count = l, j, pins, count
	b.usage.grown, b.usage.extents = l.Segments.Extended, l.Segments.Extents
	b.usage.log = func() int64 {
		if l.WAL == nil {
			return 0
		}
		return l.WAL.Bytes() + j.Bytes()
	}
}

func (b *Budget) path(name string) string { return filepath.Join(b.o.Dir, name) }

// Lack is what must go.
type Lack struct{ Bytes, Blocks int64 }

// Used is what the files occupy, with what puts under way have reserved.
func (b *Budget) Used() int64 { return b.usage.used() }

// Bytes is what all files may occupy. MaxBlocks bounds the number of blocks; 0: nothing does.
func (b *Budget) Bytes() int64     { return b.o.Bytes }
func (b *Budget) MaxBlocks() int64 { return b.o.MaxBlocks }

// IndexBytes is what index.db occupied when it was last measured.
func (b *Budget) IndexBytes() int64 { return b.indexBytes.Load() }

// GiveUp ends a reservation, whether it was used or not, or that of blocks that are published.
func (b *Budget) GiveUp(bytes, blocks int64) { b.usage.giveUp(bytes, blocks) }

// ReserveState takes room for what is in the log, in the head of its next file and in the index, if there is some without evicting.
func (b *Budget) ReserveState(bytes int64) bool {
	b.MeasureOnce()
	return b.usage.reserve(bytes, b.o.Bytes-b.ReserveBytes())
}

// ReserveMove takes room for the copy of a record that is moved.
func (b *Budget) ReserveMove(bytes int64) bool {
	leave := b.MoveReserve()
	return b.diskHas(bytes, max(b.o.MinFree, leave)) && b.usage.reserve(bytes, b.o.Bytes-leave)
}

// Stored is the number of blocks that are stored, with those that puts under way are about to add.
func (b *Budget) Stored() int64 { return b.ledger.Counts().Blocks + b.usage.unpublished() }

// StateOutgrown reports whether the log has grown by much that changes only the catalog: nobody else sees that, in a store to which nothing is put.
func (b *Budget) StateOutgrown() bool { return b.ledger.StateGrowth.Load() > b.logReserve()/2 }

// Reserve takes room for a record of so many bytes, as one of so many new blocks, if there is some without evicting.
func (b *Budget) Reserve(bytes, blocks int64) bool {
	b.MeasureOnce()
	if !b.diskHas(bytes, b.diskReserve()) || !b.usage.reserve(bytes, b.o.Bytes-b.ReserveBytes()) {
		return false
	}
	if b.reserveBlocks(blocks) {
		return true
	}
	b.usage.giveUp(bytes, 0)
	return false
}

func (b *Budget) reserveBlocks(blocks int64) bool {
	u := &b.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	if b.o.MaxBlocks > 0 && blocks > 0 && b.ledger.Counts().Blocks+u.blocks+blocks > b.o.MaxBlocks {
		return false
	}
	u.blocks += blocks
	return true
}

// diskHas reports whether the file system can take so many bytes and leave what is to be left free.
func (b *Budget) diskHas(bytes, leave int64) bool {
	free, ok := b.DiskFree()
	return !ok || free >= bytes+leave
}

// diskReserve is what puts leave free on the file system: for others, or what a checkpoint of this store needs, if that is more.
func (b *Budget) diskReserve() int64 { return max(b.o.MinFree, b.ReserveBytes()) }

// DiskFree is what is free on the file system; ok is false if that is not known.
func (b *Budget) DiskFree() (bytes int64, ok bool) {
	free, _, err := b.o.FS.Space(b.o.Dir)
	return int64(min(free, math.MaxInt64/2)), err == nil
}

// Coming are the bytes of what is dead and not yet destroyed. They come back when the log is synced, and no match can see them any more.
// What open matches keep, because it was deleted, replaced or moved under them, is not among them: how long they stay open nobody knows. What
// was evicted always is, so that nobody evicts twice for the same room. Nothing is destroyed meanwhile; else what is being destroyed may count
// twice, or not at all.
func (b *Budget) Coming() int64 {
	_, waiting := b.ledger.Catalog.Waiting()
	_, kept := b.ledger.Segments.Kept()
	return b.ledger.Segments.Held() - kept + waiting
}

// Lacking is what must go, beyond what is on its way out already, before so many bytes and blocks fit. Nothing is destroyed meanwhile.
func (b *Budget) Lacking(bytes, blocks int64) Lack {
	lack := Lack{Bytes: b.Over(bytes) - b.Coming()}
	if b.o.MaxBlocks > 0 && blocks > 0 {
		lack.Blocks = b.Stored() + blocks - b.o.MaxBlocks
	}
	return lack
}

// Over is how much there is not room for of so many bytes just now, in the budget or on the disk.
func (b *Budget) Over(bytes int64) int64 {
	over := b.usage.used() + bytes + b.ReserveBytes() - b.o.Bytes
	if free, ok := b.DiskFree(); ok {
		over = max(over, bytes+b.diskReserve()-free)
	}
	return over
}

// Hopeless returns an error if so many new bytes of a prompt, or all its blocks, would not fit if nothing else were stored.
func (b *Budget) Hopeless(bytes, blocks int64) error {
	if b.o.MaxBlocks > 0 && blocks > b.o.MaxBlocks {
		return &errFull{fmt.Sprintf("the prompt has %d blocks, and at most %d are stored (MaxBlocks)", blocks, b.o.MaxBlocks)}
	}
	const little = 16 << 20 // what is less, and not of a small budget, is not worth asking the file system
	if bytes <= min(little, b.o.Bytes/2) {
		return nil
	}
	b.MeasureOnce()
	if b.CannotHold(bytes) {
		return &errFull{fmt.Sprintf("the prompt takes %d bytes more at least, which is more than a budget of %d and the disk have if nothing else is stored", bytes, b.o.Bytes)}
	}
	return nil
}

// CannotHold reports whether a record of so many bytes would not fit if nothing else were stored: evicting is no use then.
func (b *Budget) CannotHold(bytes int64) bool {
	least := b.logReserve() + filter.MinBytes
	if bytes > b.o.Bytes-least {
		return true
	}
	free, ok := b.DiskFree()
	return ok && free+b.usage.used() < bytes+max(b.o.MinFree, least)
}

// Room is what is free on the file system, -1 if that is not known; what is left free of that; and whether for this reason nothing can be stored,
// even if all that is stored was evicted.
func (b *Budget) Room() (free, kept int64, full bool) {
	free, ok := b.DiskFree()
	if !ok {
		free = -1
	}
	return free, b.diskReserve(), !b.ledger.ReadOnly() && b.CannotHold(1)
}

// errFull is the vfs.ErrNoSpace of a store in which nothing more may go.
type errFull struct{ why string }

func (f *errFull) Error() string { return fmt.Sprintf("%v: %s", vfs.ErrNoSpace, f.why) }
func (f *errFull) Unwrap() error { return vfs.ErrNoSpace }

// IsFull reports whether err is that of a store in which nothing more may go.
func IsFull(err error) bool {
	full := new(errFull)
	return errors.As(err, &full)
}

// Full is the error of a store in which nothing more may go: why so many bytes, as so many new blocks, do not fit.
func (b *Budget) Full(bytes, blocks int64) error {
	n, held := b.ledger.Segments.Pending()
	why := fmt.Sprintf("%d bytes are needed, %d of a budget of %d are used, and nothing more can be evicted", bytes, b.usage.used(), b.o.Bytes)
	if n > 0 {
		why += fmt.Sprintf(" (%s of %s cannot be freed before open matches are closed)", damage.Count(held, "byte"), damage.Count(n, "deleted record"))
	}
	if pinned := b.ledger.Catalog.Pinned(); pinned > 0 {
		why += fmt.Sprintf("; pinned refs keep %s and what is before them", damage.Count(int64(pinned), "block"))
	}
	if used, _ := b.pins.Counts(); used > 0 {
		why += fmt.Sprintf("; open matches, and puts under way, keep %s and what is before them", damage.Count(int64(used), "block"))
	}
	if stored := b.Stored(); b.o.MaxBlocks > 0 && stored+blocks > b.o.MaxBlocks {
		why += fmt.Sprintf("; %d blocks are stored, of at most %d (MaxBlocks)", stored, b.o.MaxBlocks)
	}
	if free, ok := b.DiskFree(); ok && free < bytes+b.diskReserve() {
		why += fmt.Sprintf("; %d are free on the file system, and %d of them are kept free", free, b.diskReserve())
	}
	return &errFull{why}
}

// MeasureOnce makes up for what Open left out: asking for the size of every segment takes its time.
func (b *Budget) MeasureOnce() {
	if !b.measured.Load() {
		b.Measure()
	}
}

// Measure asks the file system what the store's files occupy.
func (b *Budget) Measure() int64 {
	if !b.ledger.ReadOnly() {
		b.journals.Count()
	}
	b.measuring.Lock() // an earlier look must not be what is remembered in the end
	defer b.measuring.Unlock()
	bloom := int64(filter.MinBytes)
	total := b.usage.measure(func() int64 {
		total := b.ledger.Segments.Allocated()
		for _, name := range []string{folder.FormatName, folder.LockName, folder.IndexName, folder.BloomName} {
			if info, err := b.o.FS.Stat(b.path(name)); err == nil {
				total += info.Allocated
				switch name {
				case folder.IndexName:
					b.indexBytes.Store(info.Allocated)
				case folder.BloomName:
					bloom = max(bloom, info.Allocated)
				}
			}
		}
		return total
	})
	b.filterBytes.Store(bloom)
	b.measured.Store(true)
	most := total
	for _, name := range []string{folder.IndexName, folder.BloomName} { // what becomes of them is in the reserve
		if info, err := b.o.FS.Stat(b.path(name + ".tmp")); err == nil {
			most += info.Allocated
		}
	}
	b.count.RaiseHigh(most)
	return total
}

// ReserveBytes is what a put leaves of the budget for all that is not records, so that the budget holds while a checkpoint
// runs, and after one that comes late.
func (b *Budget) ReserveBytes() int64 { return b.logReserve() + b.checkpointBytes() + b.headReserve() }

// headReserve is for models, refs and notes: each log file begins with them, one more than there are is made at a checkpoint, and those that are
// new since the last one are not in the others and in the index yet.
func (b *Budget) headReserve() int64 {
	n := b.ledger.Catalog.HeadBytes()
	return n + 2*min(n, b.ledger.StateGrowth.Load())
}

// logReserve is for the log, which grows, and has three files while it goes on in another, and for headers of segments.
func (b *Budget) logReserve() int64 { return min(4<<20, b.o.Bytes/8) }

// MoveReserve is what a move leaves of the budget: the same as a put, but of the log's share only what its files need. A checkpoint makes one
// more. If its process is killed before it can remove any, the next one begins another, and reserves a third. Puts leave more: else, once they
// and the index have filled the store, nothing could be moved, and evictions, which give no room back before a whole segment is dead, would go
// through the warm blocks.
func (b *Budget) MoveReserve() int64 {
	log := min(3*b.o.LogAhead+b.ledger.Catalog.HeadBytes(), b.logReserve()*3/4)
	return log + b.checkpointBytes() + b.headReserve()
}

// Step is how far ahead of its records a segment reserves disk blocks.
func (b *Budget) Step() int64 { return min(4<<20, max(64<<10, b.o.Bytes/64)) }

// indexRecordBytes is what a record adds to index.db: a row each in three tables, in pages that are half full.
const indexRecordBytes = 1 << 10

// checkpointBytes is by how much a checkpoint may lengthen the files until it is done: it writes all pages of the index
// anew before it frees the old ones, in place or in a second file, with what the index has not got yet; and the Bloom filter
// takes its room twice.
func (b *Budget) checkpointBytes() int64 {
	n := b.indexBytes.Load() + b.filterBytes.Load()
	if b.ledger.Index != nil {
		n += b.ledger.Index.Unwritten() * indexRecordBytes
	}
	return n
}

// Ahead takes room for disk blocks that a segment reserves beyond what its record needs, if there is some without evicting.
// done ends it when they are reserved.
func (b *Budget) Ahead(bytes int64) (done func(), ok bool) {
	if !b.measured.Load() || !b.diskHas(bytes, b.diskReserve()) || !b.usage.reserve(bytes, b.o.Bytes-b.ReserveBytes()) {
		return nil, false
	}
	return func() { b.usage.giveUp(bytes, 0) }, true
}
