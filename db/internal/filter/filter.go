package filter

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Options say where the filter's file is and how good the filter is to be.
type Options struct {
	FS     vfs.FS
	Dir    string // of the store
	Path   string // of the filter's file
	UUID   kv.UUID
	FPR    float64 // the false-positive rate that it is sized for
	Hasher kv.Hasher
	Logger *slog.Logger
	Wake   func() // has the worker look whether the filter is stale
}

// Filter is a store's Bloom filter. It is safe for concurrent use.
type Filter struct {
	o       Options
	ledger  *commit.Ledger
	pending *Pending
	current atomic.Pointer[index.Bloom] // nil: maybe, for everything
	load    *load
	removed atomic.Int64 // blocks removed since the filter was built

	rebuild lock.Mutex[lock.BloomRebuild] // one rebuild at a time
	fileLSN atomic.Uint64                 // of the filter's file
}

// New returns the filter of a store that was recovered. Its file can be used if plan says so, and is read when Start is called, or somebody waits
// for the filter. The keys that the replay found are pending.
func New(o Options, ledger *commit.Ledger, pending *Pending, plan Plan) *Filter {
	f := &Filter{o: o, ledger: ledger, pending: pending, load: newLoad()}
	f.load.plan = plan
	if !plan.Usable {
		f.pending.end(f, nil)
		f.Drop()
	}
	return f
}

// Empty puts an empty filter to use where there is none to come and nothing is stored.
func (f *Filter) Empty() {
	if !f.pending.on.Load() && f.current.Load() == nil && f.ledger.Counts().Blocks == 0 {
		f.current.Store(index.NewBloom(minKeys, f.o.FPR))
	}
}

// Current returns the filter in use; nil: maybe, for everything.
func (f *Filter) Current() *atomic.Pointer[index.Bloom] { return &f.current }

// Loaded returns the filter when it is there; nil while it is being built.
func (f *Filter) Loaded() *index.Bloom {
	f.Wait()
	return f.current.Load()
}

// Add is called before a block is published, so that a "no" is always true.
func (f *Filter) Add(k kv.Key) {
	f.pending.Add(k)
	if b := f.current.Load(); b != nil {
		b.Add(k)
	}
}

// Removed counts removed blocks, which the filter cannot forget.
func (f *Filter) Removed(n int64) {
	if f.removed.Add(n) > f.mostRemoved() {
		f.o.Wake()
	}
}

// mostRemoved is how many blocks may be removed before the filter is built anew.
func (f *Filter) mostRemoved() int64 { return max(8192, f.ledger.Counts().Blocks/8) }

const (
	minKeys  = 36465    // what a filter of 64 KiB holds at a false-positive rate of 0.001
	MinBytes = 68 << 10 // what the file of such a filter occupies
)

// Stale reports whether the filter is missing or too full: after many removals, or when its estimated rate is twice what it was sized for, at 80 %
// fill at the latest.
func (f *Filter) Stale() bool {
	if f.pending.on.Load() {
		return false
	}
	b := f.current.Load()
	if b == nil || b.Fill() >= 0.8 || b.EstimatedFPR() > 2*f.o.FPR {
		return true
	}
	return f.removed.Load() > f.mostRemoved()
}

// Rebuild builds a filter of what is stored now, sized for twice that, and puts it in the place of the old one. It rests as pace says while hurry
// reports that nothing else waits for the caller.
func (f *Filter) Rebuild(ctx context.Context, pace *read.Pace, hurry func() bool) error {
	f.Wait()
	f.rebuild.Lock()
	defer f.rebuild.Unlock()
	f.ledger.Lock() // every publish is in the view, or its keys are pending
	v := f.ledger.View()
	f.pending.on.Store(true)
	removed := f.removed.Load()
	f.ledger.Unlock()
	defer v.Release()

	next, err := f.of(ctx, v, pace, hurry)
	if err != nil {
		f.pending.end(f, nil)
		return err
	}
	f.pending.end(f, next)
	f.removed.Add(-removed)
	f.ledger.Dirty.Store(true)
	return nil
}

// of is a filter of all keys in v.
func (f *Filter) of(ctx context.Context, v *index.View, pace *read.Pace, hurry func() bool) (*index.Bloom, error) {
	var err error
	b := index.FillBloom(int(max(minKeys, 4*v.Counts().Blocks)), f.o.FPR, func(yield func(kv.Key) bool) {
		var root, other kv.Key // parents come in runs
		err = v.ChildRows(func(parent kv.Key, scope kv.ScopeID, hashes []byte, child kv.Key) bool {
			if !hurry() {
				pace.Rest()
			}
			if parent != root && parent != other {
				if _, ok, err := v.Get(parent, 0); err == nil && ok {
					other = parent
				} else {
					root = parent
				}
			}
			if parent == root { // a first block that is shorter than the opening may end where a scope begins
				if !yield(f.o.Hasher.Opening(parent, scope, hashes)) {
					return false
				}
			}
			return yield(child) && ctx.Err() == nil
		})
	})
	return b, errors.Join(err, ctx.Err())
}

// Write saves the filter of a checkpoint, which covers the log up to lsn. A nil filter is being built: without a file, the next open builds one, too.
func (f *Filter) Write(b *index.Bloom, lsn uint64) error {
	if b == nil {
		return nil
	}
	if err := index.WriteBloom(f.o.FS, f.o.Dir, f.o.Path, b, f.o.UUID, lsn); err != nil {
		return err
	}
	f.fileLSN.Store(lsn)
	return nil
}

// File reads the filter's file. It is current if the filter in use came from it or was written to it.
// Nobody makes a checkpoint meanwhile.
func (f *Filter) File() (b *index.Bloom, lsn uint64, current bool, err error) {
	f.Wait()
	b, lsn, err = index.ReadBloom(f.o.FS, f.o.Path, f.o.UUID)
	return b, lsn, f.fileLSN.Load() == lsn && f.current.Load() != nil, err
}
