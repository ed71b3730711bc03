package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
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
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/wal"
)

// engine is an open store's inside: what Suspend lets go of and Resume builds anew.
type engine struct {
	dir    string
	o      Options
	fs     vfs.FS
	log    *slog.Logger
	format folder.Format
	lock   *vfs.Lock // on FORMAT; nil if that is not there
	hasher kv.Hasher

	asOf    time.Time // of a reader: when what it shows was so
	logAsOf []string  // of a reader: the names of the log's files then

	workers *read.Workers
	set     *segments.Set
	ix      *index.Index
	wal     *wal.Log // nil when read-only

	bloom     atomic.Pointer[index.Bloom] // nil: maybe, for everything
	pending   pendingKeys
	rebuildMu lock.Mutex[lock.BloomRebuild] // one rebuild of the filter at a time
	bloomLSN  uint64                        // guarded by ckptMu: of the file; set by bloomLoad before that is done
	bloomLoad *bloomLoad
	removed   atomic.Int64 // blocks removed since the filter was built

	ckptMu   lock.Mutex[lock.Checkpoint]
	unsealed []recovery.Leftover // guarded by ckptMu: left so by an earlier process
	begun    *checkpointing      // guarded by ckptMu: the last checkpoint, if it failed half-way
	// gate is read-held from a record's append to its publishing, so that a checkpoint knows that below the ends it
	// notes there is nothing unnamed.
	gate   lock.RWMutex[lock.Gate]
	shorts lease.Shorts
	logMu  lock.Mutex[lock.Commit]

	barriers barriers

	catalog *catalog.Catalog

	search prefix.Store // set by openEngine, as are source and leases
	source read.Source

	pins   *lease.Pins
	leases lease.Store // as search
	writes write.Store // as search

	recency recency

	doubts []error           // why index.db was not used, if it is there; written by Open only
	gone   []recovery.Absent // records that the log names and a rebuild did not find; written by Open only

	clock, birth, floor atomic.Uint64
	growth              atomic.Int64 // bytes appended to segments and log since the last checkpoint
	stateGrowth         atomic.Int64 // of these, the frames that change only the catalog
	measured            atomic.Bool
	measuring           lock.Mutex[lock.Measure] // one look at the files at a time
	space               usage
	indexBytes          atomic.Int64 // of index.db, when it was last measured
	bloomBytes          atomic.Int64 // of the Bloom filter's file, or of the least one
	dirty               atomic.Bool  // there is something for a checkpoint to do

	onDamage func(error) // has a damaged index rebuilt; set by start

	count counters
	wake  chan struct{}
	stop  chan struct{}
	done  chan struct{}
}

func (e *engine) path(name string) string { return filepath.Join(e.dir, name) }

func (e *engine) segmentPath(id uint64) string { return folder.SegmentPath(e.dir, id) }

// commit publishes what build changes in the index, and appends the frame that says so, or does neither. build returns
// the operation, nil for nothing to log. The caller holds no lock.
func (e *engine) commit(build func(t *index.Txn) (oplog.Op, error)) (lsn uint64, err error) {
	e.logMu.Lock()
	defer e.logMu.Unlock()
	return e.commitLocked(build)
}

func (e *engine) commitLocked(build func(t *index.Txn) (oplog.Op, error)) (lsn uint64, err error) {
	if err := e.poisoned(); err != nil {
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
	if isIndexDamage(err) && e.onDamage != nil {
		e.onDamage(err)
	}
	return lsn, err
}

// commitBoth is commitLocked of an operation that changes the catalog, too: nobody sees the index after it beside the catalog
// before it.
func (e *engine) commitBoth(build func(t *index.Txn) (oplog.Op, error)) (lsn uint64, err error) {
	var release func(oplog.Op, catalog.Place)
	var built oplog.Op
	lsn, err = e.commitLocked(func(t *index.Txn) (oplog.Op, error) {
		op, err := build(t)
		if err == nil && op != nil {
			built, release = op, e.catalog.Hold()
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
func (e *engine) appendFrame(kind uint8, frame []byte) (uint64, error) {
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
	if !errors.Is(err, ErrNoSpace) || e.wal.Err() != nil {
		return lsn, err
	}
	if derr := e.wal.Donate(e.path(folder.BloomName)); derr != nil {
		return 0, err
	}
	e.log.Warn("the Bloom filter's file made room for the log on a full disk", "dir", e.dir)
	return reserved(kind, frame)
}

// logState appends a frame that changes only the catalog.
func (e *engine) logState(op oplog.Op) (lsn uint64, err error) {
	e.logMu.Lock()
	defer e.logMu.Unlock()
	return e.logStateLocked(op)
}

func (e *engine) logStateLocked(op oplog.Op) (lsn uint64, err error) {
	if err := e.poisoned(); err != nil {
		return 0, err
	}
	frame := oplog.Encode(op)
	if lsn, err = e.appendFrame(op.Kind(), frame); err != nil {
		return 0, err
	}
	e.growth.Add(int64(len(frame)))
	e.stateGrowth.Add(int64(len(frame)))
	e.dirty.Store(true)
	e.catalog.Apply(op, catalog.Place{LSN: lsn})
	return lsn, nil
}

// boundState makes a checkpoint where the log has grown by much that changes only the catalog: nobody else sees that, in a
// store to which nothing is put. The caller holds no lock.
func (e *engine) boundState(ctx context.Context) error {
	if e.wal == nil || e.stateGrowth.Load() <= e.logReserve()/2 {
		return nil
	}
	return e.checkpoint(ctx)
}

// durable makes an acknowledgement wait for the disk where the mode says so.
func (e *engine) durable(lsn uint64) error {
	if e.o.Durability != Power || lsn == 0 {
		return nil
	}
	if err := e.set.Sync(); err != nil {
		return err
	}
	return e.wal.Sync(lsn)
}

func leafOf(x index.Entry, clock, floor uint64) Leaf {
	return Leaf{
		Clock: clock, Birth: x.Birth, Hits: x.Hits,
		Start: int(x.First), End: int(x.First) + int(x.Tokens), Bytes: x.Loc.Length, Floor: floor,
	}
}

// view returns the current version of the index, for reading. Release it.
func (e *engine) view() *index.View { return e.ix.View() }

// rank is the order in which a block that is used now is evicted, its priority class in the highest byte.
func (e *engine) rank(entry index.Entry) uint64 {
	return e.catalog.Rank(entry.Key, e.order(entry, e.clock.Add(1)))
}

// order is the order in which a block is evicted that was put or used at that time of the clock.
func (e *engine) order(x index.Entry, clock uint64) uint64 {
	return e.o.Policy.Rank(leafOf(x, clock, e.floor.Load()))
}

// counts returns the size of the store as of now.
func (e *engine) counts() index.Counts {
	v := e.view()
	defer v.Release()
	return v.Counts()
}

// signal wakes the background worker.
func (e *engine) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// nextCounters are what a checkpoint or a log head records, so that no number is ever given twice.
func (e *engine) nextCounters() oplog.Counters {
	return oplog.Counters{Seq: e.birth.Load() + 1, Segment: e.set.MaxID() + 1, Clock: e.clock.Load()}
}

// openEnds are the ends of the segments that this process has begun and not sealed, and of those that an earlier one left and in
// which nothing lives: without a header they are not sealed, and a power cut may bring them back after they are unlinked. The caller
// holds the gate and ckptMu.
func (e *engine) openEnds() map[uint64]int64 {
	ends := e.set.OpenEnds()
	v := e.view()
	defer v.Release()
	for _, u := range e.unsealed {
		if u.From == 0 && v.Segment(u.ID).Records == 0 {
			ends[u.ID] = 0
		}
	}
	return ends
}

// poisoned returns the error after which nothing may be written any more.
func (e *engine) poisoned() error {
	if e.wal == nil {
		return ErrReadOnly
	}
	if err := e.wal.Err(); err != nil {
		return err
	}
	if err := e.set.Err(); err != nil {
		return err
	}
	return e.ix.Err()
}

// isIndexDamage reports whether err says that index.db cannot be trusted any more.
func isIndexDamage(err error) bool { return errors.Is(err, index.ErrDamaged) }

func since(t time.Time) time.Duration { return time.Since(t) }

func itoa(n int) string { return strconv.Itoa(n) }
