package checkpoint

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/db/internal/budget"
	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/filter"
	"github.com/dormousekv/dormouse/db/internal/journals"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/db/internal/suspect"
	"github.com/dormousekv/dormouse/db/internal/tally"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/lock"
)

// Parts are what checkpoints work on.
type Parts struct {
	Ledger   *commit.Ledger
	Filter   *filter.Filter
	Journals *journals.Set
	Budget   *budget.Budget
	Judge    *suspect.Judge
	Workers  *read.Workers
	Count    *tally.Counters
	LogAhead int64  // bytes that a file of the log reserves ahead
	Wake     func() // has the worker do what was left
}

// Checkpoints makes checkpoints, and destroys what is dead. One of either runs at a time: the caller has the lock where a method says so.
type Checkpoints struct {
	Parts
	mu       lock.Mutex[lock.Checkpoint]
	waiting  atomic.Int32
	unsealed []recovery.Leftover // guarded by mu: segments that an earlier process left as they are
	begun    *begun              // guarded by mu: the last checkpoint, if it failed half-way
}

// New returns the checkpoints of a store in which an earlier process left some segments unsealed.
func New(p Parts, unsealed []recovery.Leftover) *Checkpoints {
	return &Checkpoints{Parts: p, unsealed: unsealed}
}

// Lock keeps others from making checkpoints, and from destroying anything, until Unlock.
func (k *Checkpoints) Lock() {
	k.waiting.Add(1)
	k.mu.Lock()
	k.waiting.Add(-1)
}

// Unlock ends Lock.
func (k *Checkpoints) Unlock() { k.mu.Unlock() }

// waited reports whether somebody waits for the lock.
func (k *Checkpoints) waited() bool { return k.waiting.Load() > 0 }

// begun is a checkpoint that has begun: what lies below its frame waits, frozen, to be written.
type begun struct {
	applied index.Applied
	empty   []uint64 // segments in which nothing lived when it began
	// bloom is the filter of that time, nil for none: one that is built later does not know what was removed since, and a power
	// cut can take the frames that say so.
	bloom   *index.Bloom
	indexed bool // index.db has it
	// growth and stateGrowth are the ledger's at that time: what comes while it is written is for the next one.
	growth, stateGrowth int64
}

// Run makes everything durable that was acknowledged so far, moves it from the log to the index, removes the log files that are no longer needed, and
// destroys what is dead. The caller has the lock.
func (k *Checkpoints) Run(ctx context.Context) error {
	l := k.Ledger
	if err := l.Poisoned(); err != nil {
		return err
	}
	start := time.Now()
	rest := k.restBetween()

	// One that failed comes first. While that goes on failing, each try must not make another log file.
	if b := k.begun; b != nil {
		if err := k.write(ctx, b, rest); err != nil && !k.worthRotating(b) {
			l.Dirty.Store(true)
			return err
		}
	}
	k.Filter.Wait() // else this one has no filter to write
	b, err := k.freeze()
	if err != nil {
		return err
	}
	k.begun = b
	rest()
	k.Journals.Sync() // one that refuses writes says so itself, and is no reason for a log that grows for ever; what follows sees a failed fsync
	rest()
	if err := k.write(ctx, b, rest); err != nil {
		l.Dirty.Store(true) // the frozen part still waits
		return err
	}
	l.Growth.Add(-b.growth)
	l.StateGrowth.Add(-b.stateGrowth)
	k.Count.Checkpoints.Add(1)
	k.Count.CheckpointNanos.Store(int64(time.Since(start)))
	rest()
	return k.ReclaimRest(ctx)
}

// restBetween returns what rests between two steps of a checkpoint, each of which syncs files, while restores are at work and nobody waits for the
// lock. Without it one restore has all of them beside it, and every sync keeps a processor for a while.
func (k *Checkpoints) restBetween() func() {
	pace := k.Workers.PutPace()
	return func() {
		if !k.waited() {
			pace.Rest()
		}
	}
}

// worthRotating reports whether the log should go on in a new file although b failed again: on a full disk, that may have the
// only room for what makes some; and if just the old files cannot be removed, the index need not fall behind for that.
func (k *Checkpoints) worthRotating(b *begun) bool {
	used, ahead := k.Ledger.WAL.Room()
	least := k.LogAhead / 2
	return ahead < least || b.indexed && used >= least
}

// freeze switches to a new log file whose head repeats the catalog, and freezes the index at the last frame before it. While it holds the gate, no
// record is on its way from a segment to the index.
func (k *Checkpoints) freeze() (*begun, error) {
	l := k.Ledger
	l.Gate.Lock()
	defer l.Gate.Unlock()
	c, err := l.Begin()
	if err != nil {
		return nil, err
	}
	defer c.End()
	if _, err := c.Commit(nil); err != nil { // the uses that wait
		return nil, err
	}
	k.Judge.ForgetFlags()
	empty := k.Empty()
	encode, _ := k.LaterHead()
	var head []byte
	var a index.Applied
	a.WALFile, a.LSN, err = l.WAL.Rotate(func(lsn uint64) []byte {
		head = encode()
		return head
	})
	if err != nil {
		return nil, err
	}
	next := l.NextCounters()
	l.Dirty.Store(false)
	a.NextSeq, a.NextSegment, a.Clock, a.Extra = next.Seq, next.Segment, next.Clock, head
	l.Index.Freeze()
	return &begun{
		applied: a, empty: empty, bloom: k.Filter.Current().Load(), growth: l.Growth.Load(), stateGrowth: l.StateGrowth.Load(),
	}, nil
}

// write does what is still to be done of a checkpoint that has begun, and calls rest between its steps. The caller has the lock.
func (k *Checkpoints) write(ctx context.Context, b *begun, rest func()) error {
	l := k.Ledger
	if err := k.SealLeftovers(ctx); err != nil {
		return err
	}
	if err := l.Segments.Sync(); err != nil {
		return err
	}
	l.Checkpointed(b.applied.LSN)
	rest()
	if !b.indexed {
		if err := l.Index.Checkpoint(ctx, b.applied); err != nil {
			return err
		}
		b.indexed = true
		rest()
		if err := k.Filter.Write(b.bloom, b.applied.LSN); err != nil { // no reason for a log that grows for ever
			l.Logger.Warn("the Bloom filter's file could not be written: the next open may have to rebuild it", "dir", l.Dir, "error", err)
		}
	}
	rest()
	k.Budget.Measure() // the log still has its old files: this is the most
	if err := l.WAL.Remove(b.applied.WALFile); err != nil {
		return err
	}
	l.Catalog.Unlink(false, b.empty...)
	k.begun = nil
	return nil
}

// LaterHead is what the log's next file begins with, as of now, encoded when that is written: a process that only reads needs none. Encoding takes no
// lock. The caller has locked the gate and begun a change, or nobody else uses the store yet.
func (k *Checkpoints) LaterHead() (encode func() []byte, sizeBound int64) {
	ends := k.OpenEnds()
	return k.Ledger.Catalog.Head(ends, k.Ledger.NextCounters()), k.Ledger.Catalog.HeadBound(len(ends))
}
