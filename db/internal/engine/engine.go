package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/db/internal/write"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/wal"
)

// Engine is an open store's inside: what Suspend lets go of and Resume builds anew.
type Engine struct {
	Dir    string
	o      Options
	FS     vfs.FS
	log    *slog.Logger
	Format folder.Format
	lock   *vfs.Lock // on FORMAT; nil if that is not there
	Hasher kv.Hasher

	asOf    time.Time // of a reader: when what it shows was so
	logAsOf []string  // of a reader: the names of the log's files then

	workers  *read.Workers
	Segments *segments.Set
	Index    *index.Index
	wal      *wal.Log // nil when read-only

	bloom     atomic.Pointer[index.Bloom] // nil: maybe, for everything
	pending   pendingKeys
	rebuildMu lock.Mutex[lock.BloomRebuild] // one rebuild of the filter at a time
	bloomLSN  uint64                        // guarded by ckptMu: of the file; set by bloomLoad before that is done
	bloomLoad *bloomLoad
	removed   atomic.Int64 // blocks removed since the filter was built

	ckptMu   lock.Mutex[lock.Checkpoint]
	unsealed []recovery.Leftover // guarded by ckptMu: left so by an earlier process
	begun    *checkpointing      // guarded by ckptMu: the last checkpoint, if it failed half-way
	// publishGate is read-held from a record's append to its publishing, so that a checkpoint knows that below the ends it
	// notes there is nothing unnamed.
	publishGate lock.RWMutex[lock.PublishGate]
	shorts      lease.Shorts
	logMu       lock.Mutex[lock.Commit]

	barriers barriers

	Catalog *catalog.Catalog

	Search prefix.Store // set by openEngine, as are source and leases
	Source read.Source

	Pins   *lease.Pins
	Leases lease.Store // as search
	writes write.Store // as search

	recency recency

	Doubts []error           // why index.db was not used, if it is there; written by Open only
	Absent []recovery.Absent // records that the log names and a rebuild did not find; written by Open only

	clock, seq, watermark atomic.Uint64
	growth                atomic.Int64 // bytes appended to segments and log since the last checkpoint
	stateGrowth           atomic.Int64 // of these, the frames that change only the catalog
	measured              atomic.Bool
	measuring             lock.Mutex[lock.Measure] // one look at the files at a time
	space                 usage
	indexBytes            atomic.Int64 // of index.db, when it was last measured
	bloomBytes            atomic.Int64 // of the Bloom filter's file, or of the least one
	dirty                 atomic.Bool  // there is something for a checkpoint to do

	onDamage func(error) // has a damaged index rebuilt; set by start

	Count Counters
	wake  chan struct{}
	stop  chan struct{}
	done  chan struct{}
}

func (e *Engine) Path(name string) string { return filepath.Join(e.Dir, name) }

func (e *Engine) SegmentPath(id uint64) string { return folder.SegmentPath(e.Dir, id) }

// Commit publishes what build changes in the index, and appends the frame that says so, or does neither. build returns
// the operation, nil for nothing to log. The caller holds no lock.
func (e *Engine) Commit(build func(t *index.Txn) (oplog.Op, error)) (lsn uint64, err error) {
	e.logMu.Lock()
	defer e.logMu.Unlock()
	return e.commitLocked(build)
}

func (e *Engine) commitLocked(build func(t *index.Txn) (oplog.Op, error)) (lsn uint64, err error) {
	if err := e.Poisoned(); err != nil {
		return 0, err
	}
	err = e.updateIndex(func(t *index.Txn) error {
		op, err := build(t)
		if err != nil || op == nil {
			return err
		}
		frame := oplog.Encode(op)
		e.growth.Add(int64(len(frame)))
		lsn, err = e.appendFrame(op.Kind(), frame)
		return err
	})
	e.dirty.Store(true)
	if err != nil && lsn != 0 {
		err = fmt.Errorf("%w: frame %d is logged and was not applied: %w", index.ErrDamaged, lsn, err)
	}
	if IsIndexDamage(err) && e.onDamage != nil {
		e.onDamage(err)
	}
	return lsn, err
}

// commitBoth is commitLocked of an operation that changes the catalog, too: nobody sees the index after it beside the catalog
// before it.
func (e *Engine) commitBoth(build func(t *index.Txn) (oplog.Op, error)) (lsn uint64, err error) {
	var release func(oplog.Op, catalog.Place)
	var built oplog.Op
	lsn, err = e.commitLocked(func(t *index.Txn) (oplog.Op, error) {
		op, err := build(t)
		if err == nil && op != nil {
			built, release = op, e.Catalog.Hold()
		}
		return op, err
	})
	if release == nil {
		return lsn, err
	}
	if err != nil {
		built = nil
	}
	release(built, catalog.Place{LSN: lsn})
	return lsn, err
}

// appendFrame is wal.Append that does more to log what makes room, because a full disk would stay full otherwise: such frames
// may use what is reserved, and as a last resort the blocks of the Bloom filter's file, which is derived.
func (e *Engine) appendFrame(kind uint8, frame []byte) (uint64, error) {
	reserved := e.wal.AppendReserved
	switch kind {
	case oplog.KindRemove, oplog.KindRetire, oplog.KindUnref:
		reserved = func(kind uint8, frame []byte) (uint64, error) {
			return e.wal.AppendBefore(kind, frame, oplog.BarrierBytes)
		}
	case oplog.KindBarrier:
	default:
		return e.wal.Append(kind, frame)
	}
	lsn, err := reserved(kind, frame)
	if !errors.Is(err, vfs.ErrNoSpace) || e.wal.Err() != nil {
		return lsn, err
	}
	if derr := e.wal.Donate(e.Path(folder.BloomName)); derr != nil {
		return 0, err
	}
	e.log.Warn("the Bloom filter's file made room for the log on a full disk", "dir", e.Dir)
	return reserved(kind, frame)
}

// logState appends a frame that changes only the catalog.
func (e *Engine) LogState(op oplog.Op) (lsn uint64, err error) {
	e.logMu.Lock()
	defer e.logMu.Unlock()
	return e.logStateLocked(op)
}

func (e *Engine) logStateLocked(op oplog.Op) (lsn uint64, err error) {
	if err := e.Poisoned(); err != nil {
		return 0, err
	}
	frame := oplog.Encode(op)
	if lsn, err = e.appendFrame(op.Kind(), frame); err != nil {
		return 0, err
	}
	e.growth.Add(int64(len(frame)))
	e.stateGrowth.Add(int64(len(frame)))
	e.dirty.Store(true)
	e.Catalog.Apply(op, catalog.Place{LSN: lsn})
	return lsn, nil
}

// BoundState makes a checkpoint where the log has grown by much that changes only the catalog: nobody else sees that, in a
// store to which nothing is put. The caller holds no lock.
func (e *Engine) BoundState(ctx context.Context) error {
	if e.wal == nil || e.stateGrowth.Load() <= e.logReserve()/2 {
		return nil
	}
	return e.Checkpoint(ctx)
}

// durable makes an acknowledgement wait for the disk where the mode says so.
func (e *Engine) durable(lsn uint64) error {
	if !e.o.Power || lsn == 0 {
		return nil
	}
	if err := e.Segments.Sync(); err != nil {
		return err
	}
	return e.wal.Sync(lsn)
}

// LeafOf is what a policy knows about a block that was put or used at that time of the clock.
func LeafOf(x index.Entry, clock, watermark uint64) Leaf {
	return Leaf{
		Clock: clock, Seq: x.Seq, Hits: x.Hits,
		Start: int(x.First), End: int(x.First) + int(x.Tokens), Bytes: x.Loc.Length, Watermark: watermark,
	}
}

// View returns the current version of the index, for reading. Release it.
func (e *Engine) View() *index.View { return e.Index.View() }

// rank is the order in which a block that is used now is evicted, its priority class in the highest byte.
func (e *Engine) rank(entry index.Entry) uint64 {
	return e.Catalog.Rank(entry.Key, e.order(entry, e.clock.Add(1)))
}

// order is the order in which a block is evicted that was put or used at that time of the clock.
func (e *Engine) order(x index.Entry, clock uint64) uint64 {
	return e.o.Rank(LeafOf(x, clock, e.watermark.Load()))
}

// counts returns the size of the store as of now.
func (e *Engine) Counts() index.Counts {
	v := e.View()
	defer v.Release()
	return v.Counts()
}

// signal wakes the background worker.
func (e *Engine) Signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// nextCounters are what a checkpoint or a log head records, so that no number is ever given twice.
func (e *Engine) nextCounters() oplog.Counters {
	return oplog.Counters{Seq: e.seq.Load() + 1, Segment: e.Segments.MaxID() + 1, Clock: e.clock.Load()}
}

// openEnds are the ends of the segments that this process has begun and not sealed, and of those that an earlier one left and in
// which nothing lives: without a header they are not sealed, and a power cut may bring them back after they are unlinked. The caller
// holds the publish gate and ckptMu.
func (e *Engine) openEnds() map[uint64]int64 {
	ends := e.Segments.OpenEnds()
	v := e.View()
	defer v.Release()
	for _, u := range e.unsealed {
		if u.From == 0 && v.Segment(u.ID).Records == 0 {
			ends[u.ID] = 0
		}
	}
	return ends
}

// poisoned returns the error after which nothing may be written any more.
func (e *Engine) Poisoned() error {
	if e.wal == nil {
		return folder.ErrReadOnly
	}
	if err := e.wal.Err(); err != nil {
		return err
	}
	if err := e.Segments.Err(); err != nil {
		return err
	}
	return e.Index.Err()
}

func since(t time.Time) time.Duration { return time.Since(t) }

// ReadOnly reports whether the store was opened without leave to write.
func (e *Engine) ReadOnly() bool { return e.wal == nil }

// AsOf is when what a reader shows was so, and whether another process writes to the store; zero in a store that is open for writing.
func (e *Engine) AsOf() (at time.Time, besideWriter bool) { return e.asOf, e.o.Beside }

// Used notes that a match ended in block k.
func (e *Engine) Used(k kv.Key) { e.recency.used(k) }

// Bloom returns the filter, when it is there; nil while it is being built.
func (e *Engine) Bloom() *index.Bloom {
	e.bloomLoad.wait()
	return e.bloom.Load()
}

// Leftovers are the segments that an earlier process did not seal, and that are not sealed yet.
func (e *Engine) Leftovers() []recovery.Leftover {
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	return slices.Clone(e.unsealed)
}

// BetweenCheckpoints calls do while no checkpoint runs and nothing is destroyed.
func (e *Engine) BetweenCheckpoints(do func()) {
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	do()
}

// HoldLog calls do while no file of the log is removed, and nothing appended.
func (e *Engine) HoldLog(do func()) {
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	e.logMu.Lock()
	defer e.logMu.Unlock()
	do()
}

// BloomFile reads the Bloom filter's file. It is current if the filter in use came from it or was written to it.
func (e *Engine) BloomFile() (b *index.Bloom, lsn uint64, current bool, err error) {
	e.bloomLoad.wait()
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	b, lsn, err = index.ReadBloom(e.FS, e.Path(folder.BloomName), e.Format.UUID)
	return b, lsn, e.bloomLSN == lsn && e.bloom.Load() != nil, err
}

// RaiseNumbers keeps sequence numbers and times up to these from being given again.
func (e *Engine) RaiseNumbers(seq, clock uint64) {
	e.seq.Store(max(e.seq.Load(), seq))
	e.clock.Store(max(e.clock.Load(), clock))
}

// Appending keeps checkpoints from beginning until done is called: records that are appended have to be committed before.
func (e *Engine) Appending() (done func()) {
	e.publishGate.RLock()
	return e.publishGate.RUnlock
}

// Grew notes bytes that were appended, and reports whether a checkpoint is due.
func (e *Engine) Grew(bytes int64) (due bool) { return e.growth.Add(bytes) >= e.o.CheckpointBytes }

// Record reads a record of the index, whose bytes stay readable meanwhile. segments.ErrDestroyed if it does not lie at l any more.
func (e *Engine) Record(key kv.Key, group uint8, l loc.Loc, read func(*segments.Record) error) error {
	lease := e.shorts.Acquire(e.Segments) // what is found stays readable
	defer e.shorts.Release(lease)
	v := e.View()
	x, ok, err := v.Get(key, group)
	v.Release()
	if err == nil && (!ok || x.Loc != l) {
		err = segments.ErrDestroyed
	}
	if err != nil {
		return err
	}
	if err := e.Segments.Read(l, read); err != nil {
		return e.FoundBad(key, group, l, err)
	}
	return nil
}
