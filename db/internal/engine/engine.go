package engine

import (
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/direct"
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

// Engine is an open store's inside: what Suspend lets go of and Resume builds anew.
type Engine struct {
	*Kept

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
	ring     direct.Ring // of cold restores
	again    read.Again
	Segments *segments.Set
	Index    *index.Index
	wal      *wal.Log // nil when read-only

	bloom     atomic.Pointer[index.Bloom] // nil: maybe, for everything
	pending   pendingKeys
	rebuildMu lock.Mutex[lock.BloomRebuild] // one rebuild of the filter at a time
	bloomLSN  uint64                        // guarded by ckptMu: of the file; set by bloomLoad before that is done
	bloomLoad *bloomLoad
	removed   atomic.Int64 // blocks removed since the filter was built

	ckptMu   waited
	unsealed []recovery.Leftover // guarded by ckptMu: left so by an earlier process
	begun    *checkpointing      // guarded by ckptMu: the last checkpoint, if it failed half-way
	// publishGate is read-held by a put from before its records are encoded to their publishing, so that a checkpoint knows that below the ends it
	// notes there is nothing unnamed.
	publishGate lock.RWMutex[lock.PublishGate]
	commitMu    lock.Mutex[lock.Commit]

	barriers barriers
	rounds   *rounds

	Catalog *catalog.Catalog

	Search prefix.Store // set by Open when all else is open, as are Source, Leases and writes
	Source read.Source

	Leases lease.Store
	writes write.Store

	recency recency

	sessions *sessionSet

	Doubts []error       // why index.db was not used, if it is there; written by Open only
	Absent []index.Entry // records that the log names and a rebuild did not find; written by Open only
	Lost   []index.Entry // records that are not whole, of which nothing says that they had been durable; written by Open only

	clock, seq, watermark atomic.Uint64
	walked                atomic.Int64 // how often evictions have gone through the leaves of a model
	growth                atomic.Int64 // bytes appended to segments and log since the last checkpoint
	stateGrowth           atomic.Int64 // of these, the frames that change only the catalog
	measured              atomic.Bool
	measuring             lock.Mutex[lock.Measure] // one look at the files at a time
	space                 usage
	indexBytes            atomic.Int64 // of index.db, when it was last measured
	bloomBytes            atomic.Int64 // of the Bloom filter's file, or of the least one
	dirty                 atomic.Bool  // there is something for a checkpoint to do
	crowded               atomic.Int32 // files of the log that were there when the store was opened
	deletions             atomic.Int32 // that are under way
	pinned                pinned

	onDamage func(error) // has a damaged index rebuilt; set by Start

	wake chan struct{}
	stop chan struct{}
	done chan struct{}
}

// Path is that of a file of the store.
func (e *Engine) Path(name string) string { return filepath.Join(e.Dir, name) }

// SegmentPath is that of a segment's file.
func (e *Engine) SegmentPath(id uint64) string { return folder.SegmentPath(e.Dir, id) }

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

// Counts returns the size of the store as of now.
func (e *Engine) Counts() index.Counts {
	v := e.View()
	defer v.Release()
	return v.Counts()
}

// Signal wakes the background worker.
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
// which nothing lives: they may have no header, and a power cut may bring them back after they are unlinked. The caller
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

// Poisoned returns the error after which nothing may be written any more.
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

// ReadOnly reports whether the store was opened without leave to write.
func (e *Engine) ReadOnly() bool { return e.wal == nil }

// AsOf is when what a reader shows was so, and whether another process writes to the store; zero in a store that is open for writing.
func (e *Engine) AsOf() (at time.Time, besideWriter bool) { return e.asOf, e.o.Beside }

// Restores are those who match and restore: what can wait gives way to them.
func (e *Engine) Restores() *read.Crew { return &e.workers.Restores }

// Used notes that a match ended in block k.
func (e *Engine) Used(k kv.Key) { e.recency.used(k) }

// Bloom returns the filter, when it is there; nil while it is being built.
func (e *Engine) Bloom() *index.Bloom {
	e.bloomLoad.wait()
	return e.bloom.Load()
}
