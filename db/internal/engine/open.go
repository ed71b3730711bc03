package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db/internal/budget"
	"github.com/dormousekv/dormouse/db/internal/checkpoint"
	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/evict"
	"github.com/dormousekv/dormouse/db/internal/filter"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/journals"
	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/db/internal/remove"
	"github.com/dormousekv/dormouse/db/internal/space"
	"github.com/dormousekv/dormouse/db/internal/suspect"
	"github.com/dormousekv/dormouse/db/internal/tally"
	"github.com/dormousekv/dormouse/db/internal/write"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/boot"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/wal"
)

// Open opens what is in dir, or makes a new store there. The index is built anew if it turns out to be damaged on the way. The caller holds
// LOCK.
func Open(ctx context.Context, dir string, o Options) (*Engine, error) {
	e, err := OpenRebuilt(ctx, dir, o, nil)
	if IsIndexDamage(err) {
		return OpenRebuilt(ctx, dir, o, err)
	}
	return e, err
}

// OpenRebuilt opens what is in dir, or makes a new store there: FORMAT, segments, index, log, Bloom filter, in this
// order. The caller holds the lock. A doubt about the index has it built anew. A reader beside a writer looks again where that one has changed the
// files meanwhile, for a while.
func OpenRebuilt(ctx context.Context, dir string, o Options, doubt error) (*Engine, error) {
	for until := time.Now().Add(folder.ReaderWait); ; time.Sleep(5 * time.Millisecond) {
		e, err := open(ctx, dir, o, doubt)
		if written := (*recovery.ErrWritten)(nil); !errors.As(err, &written) || ctx.Err() != nil || time.Now().After(until) {
			return e, err
		}
	}
}

func open(ctx context.Context, dir string, o Options, doubt error) (opened *Engine, err error) {
	if o.Beside && !o.ReadOnly {
		return nil, errors.New("engine: beside a writer, a store is only read")
	}
	if o.Kept == nil {
		o.Kept = NewKept()
	}
	e := &Engine{
		Dir: dir, FS: o.FS, o: o, log: o.Logger, Pins: o.Kept.Pins, Count: &o.Kept.Count,
		workers: read.NewWorkers(), worker: newWorker(),
	}
	defer func() {
		if err != nil || opened == nil { // also where the caller's Progress panics
			e.Abandon()
		}
	}()
	if doubt != nil {
		if err := e.stillHere(); err != nil {
			return nil, err
		}
	}
	if err := e.openFormat(); err != nil {
		return nil, err
	}
	if was := e.o.Kept.uuid; was != (kv.UUID{}) && e.Format.UUID != was { // Resume, and another medium lies there
		return nil, e.another(e.Format.UUID)
	}
	e.o.Kept.uuid = e.Format.UUID
	if err := e.lockFormat(); err != nil {
		return nil, err
	}
	if o.ReadOnly {
		err = e.holdIndex()
	} else {
		err = e.refuseForeign()
	}
	if err != nil {
		return nil, err
	}
	e.Hasher = kv.NewHasher(e.Format.Seed)
	e.Budget = budget.New(budget.Options{
		FS: e.FS, Dir: dir, Bytes: o.Budget, MinFree: o.MinFree, MaxBlocks: o.MaxBlocks, LogAhead: e.logAhead(),
	})
	e.Segments, err = segments.Open(segments.Options{
		FS: e.FS, Dir: e.Path(folder.SegmentsDir), UUID: e.Format.UUID, Seed: e.Format.Seed, SegmentBytes: o.SegmentBytes,
		AllocateStep: e.Budget.Step(), Ahead: e.Budget.Ahead,
		Poisoned: e.markUnsynced, ReadOnly: o.ReadOnly, Overtaken: e.Overtaken, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	r, err := e.recover(ctx, doubt)
	if err != nil {
		return nil, err
	}
	if o.ReadOnly {
		return e, nil
	}
	if err := e.writeUnsynced(r); err != nil {
		return nil, err
	}
	if err := e.startLog(ctx, r); err != nil {
		return nil, err
	}
	e.Filter.Empty()
	e.Ledger.Dirty.Store(r.Rebuilt || r.Changed) // the worker's first checkpoint keeps what was recovered
	if err := e.endUnsynced(ctx); err != nil {
		return nil, err
	}
	e.Space.Crowd(len(r.Log.Files))
	return e, e.Evictor.FindWatermark()
}

// recover finds out what the store is. A reader beside a writer takes what the last checkpoint wrote, without what was removed since.
func (e *Engine) recover(ctx context.Context, doubt error) (*recovery.Result, error) {
	pending, ranks := filter.NewPending(), &commit.Ranks{Policy: e.o.Rank}
	in := recovery.Input{
		FS: e.FS, Dir: e.Dir, Segments: e.Segments, Bloom: e.Path(folder.BloomName), Hasher: e.Hasher, Unsynced: e.unsynced(),
		ReadOnly: e.o.ReadOnly, Doubt: doubt, Logger: e.log, IndexOptions: e.indexOptions(), LogOptions: e.ReadLogOptions(),
		Rank: ranks.Order, AddKey: pending.Add,
	}
	if e.o.Progress != nil {
		in.Progress = func(done, total int64) { e.o.Progress(tally.Progress{What: "scan segments", Done: done, Total: total}) }
	}
	run := func() (recovery.Result, error) { return recovery.Run(ctx, in) }
	if e.o.Beside {
		in.Copied = func() (bool, error) { return true, nil }
		if h, ok := e.FS.(folder.HeldIndex); ok {
			in.Copied = h.Same
		}
		run = func() (recovery.Result, error) { return recovery.Beside(in) }
	}
	r, err := run()
	if e.Index = r.Index; errors.Is(err, wal.ErrVersion) || errors.Is(err, vfs.ErrVersion) {
		return nil, folder.OfAnotherRelease(err)
	}
	if err != nil {
		return nil, err
	}
	e.Recovered = Recovered{Doubts: r.Doubts, Absent: r.Absent, Lost: r.Lost}
	e.furnish(&r, ranks, pending)
	return &r, nil
}

// furnish makes the rooms of a store that was recovered, each of those before it.
func (e *Engine) furnish(r *recovery.Result, ranks *commit.Ranks, pending *filter.Pending) {
	o := &e.o
	e.Catalog = r.Catalog
	ranks.Clock.Store(r.Clock)
	e.Ledger = commit.New(commit.Parts{
		Dir: e.Dir, Logger: e.log, Segments: e.Segments, Index: e.Index, Catalog: e.Catalog, Ranks: ranks, Power: o.Power, Spare: e.Path(folder.BloomName),
	})
	e.Ledger.Seq.Store(r.Seq)
	e.Filter = filter.New(filter.Options{
		FS: e.FS, Dir: e.Dir, Path: e.Path(folder.BloomName), UUID: e.Format.UUID, FPR: o.BloomFPR, Hasher: e.Hasher, Logger: e.log, Wake: e.Signal,
	}, e.Ledger, pending, planOf(r))
	e.Judge = &suspect.Judge{FS: e.FS, Ledger: e.Ledger, Count: e.Count, Overtaken: e.Overtaken}
	e.Search = prefix.Store{
		Hasher: e.Hasher, Index: e.Index, Bloom: e.Filter.Current(), Segments: e.Segments, WasDamaged: e.Catalog.IsFlagged, Report: e.Judge.Report,
		Collisions: &e.Count.Collisions, BloomFalse: &e.Count.BloomFalse,
	}
	e.again.Segments, e.again.Busy = e.Segments, e.ring.Busy
	e.Source = read.Source{
		Segments: e.Segments, Workers: e.workers, Ring: &e.ring, Again: &e.again, Named: e.Catalog.IsNamed, Cause: e.Judge.FoundBad, Report: e.Judge.Report,
	}
	e.Leases = lease.Store{Search: &e.Search, Pins: e.Pins, Committed: e.Ledger.Await}

	e.Journals = journals.New(journals.Options{
		FS: e.FS, Dir: e.Dir, UUID: e.Format.UUID, Poisoned: e.Segments.Poison, Seq: &e.Ledger.Seq, Logger: e.log,
	}, o.Kept.open)
	e.Budget.Begin(e.Ledger, e.Journals, e.Pins, e.Count)
	e.Checkpoints = checkpoint.New(checkpoint.Parts{
		Ledger: e.Ledger, Filter: e.Filter, Journals: e.Journals, Budget: e.Budget, Judge: e.Judge, Workers: e.workers, Count: e.Count,
		LogAhead: e.logAhead(), Wake: e.Signal,
	}, r.Leftover)
	e.Evictor = &evict.Evictor{Ledger: e.Ledger, Checkpoints: e.Checkpoints, Filter: e.Filter, Pins: e.Pins, Count: e.Count}
	e.Space = space.New(space.Parts{
		Ledger: e.Ledger, Budget: e.Budget, Checkpoints: e.Checkpoints, Journals: e.Journals, Evictor: e.Evictor, Workers: e.workers, Count: e.Count,
		HighWater: o.HighWater, LowWater: o.LowWater, SegmentBytes: o.SegmentBytes,
	})
	e.Remover = &remove.Remover{
		Ledger: e.Ledger, Checkpoints: e.Checkpoints, Journals: e.Journals, Filter: e.Filter, Hasher: e.Hasher, Search: &e.Search, Pins: e.Pins,
		Workers: e.workers, Count: e.Count, Wake: e.Signal,
	}
	e.Puts = write.Store{
		Store: &e.Leases, Rows: &e.Source, Ledger: e.Ledger, Filter: e.Filter, Judge: e.Judge, Budget: e.Budget, Space: e.Space, Replaced: &e.Count.Replaced,
	}
}

// planOf says whether the Bloom filter's file can be used.
func planOf(r *recovery.Result) filter.Plan {
	if r.Rebuilt || len(r.Log.Files) == 0 {
		return filter.Plan{}
	}
	return filter.Plan{Usable: true, Fresh: r.Applied.LSN == 0, First: r.Log.Files[0].FirstLSN, Last: r.Log.LastLSN}
}

// another is the error where another store lies at the place of the one that was open.
func (e *Engine) another(found kv.UUID) error {
	return fmt.Errorf("%s: %w: store %s lies where %s was", e.Dir, vfs.ErrForeign, found, e.o.Kept.uuid)
}

// stillHere fails where the store whose index is in doubt does not lie there any more, or another one does, which is not touched.
func (e *Engine) stillHere() error {
	f, err := folder.StillThere(e.FS, e.Dir)
	if was := e.o.Kept.uuid; err == nil && was != (kv.UUID{}) && f.UUID != was {
		err = e.another(f.UUID)
	}
	return err
}

// startLog begins a new log file whose head repeats the catalog. The files before it stay until a checkpoint.
func (e *Engine) startLog(ctx context.Context, r *recovery.Result) error {
	head, size := e.Checkpoints.LaterHead()
	sound := e.Segments.Err() == nil                             // else nothing is written
	if sound && size > int64(maxHead) && len(head()) > maxHead { // so many records wait to be destroyed that the log could never begin
		if err := e.destroyListed(ctx, r); err != nil {
			return err
		}
		head, _ = e.Checkpoints.LaterHead()
	}
	o, id, lsn := e.LogOptions(), max(r.Log.LastFile, r.Applied.WALFile)+1, max(r.Log.LastLSN, r.Applied.LSN)+1
	if sound && len(r.Listed) > 0 { // before a segment is cut behind what lives: what lay there, and was lost, must not look as if somebody had cut it
		var err error
		if e.Ledger.WAL, err = wal.Create(o, id, lsn, head()); !errors.Is(err, vfs.ErrNoSpace) {
			return err
		}
	}
	var err error
	if sound && (r.Rebuilt || len(r.Log.Files) == 0) { // the log is what says that there is a store
		e.Ledger.WAL, err = wal.Create(o, id, lsn, head())
	} else {
		e.Ledger.WAL, err = wal.CreateLater(o, id, lsn, head)
	}
	return err
}

// destroyListed destroys records that the log lists as dead, before a log begins. The frames that it was read from are the barrier.
func (e *Engine) destroyListed(ctx context.Context, r *recovery.Result) error {
	e.Catalog.Defer(r.Listed)
	e.Checkpoints.Lock()
	_, err := e.Checkpoints.ReclaimAfter(ctx, nil, func(behind bool) error {
		if behind {
			if err := e.Segments.Sync(); err != nil {
				return err
			}
		}
		return wal.SyncFiles(e.LogOptions())
	})
	e.Checkpoints.Unlock()
	if err != nil && !errors.Is(err, ErrNotDestroyed) {
		return err
	}
	e.Catalog.BuryAt(slices.Collect(maps.Keys(r.Listed))...) // though its segment may be gone
	return nil
}

// maxHead is the longest head of a log file. A variable for tests.
var maxHead = wal.MaxPayload

// LogOptions are those of the log.
func (e *Engine) LogOptions() wal.Options {
	return wal.Options{
		FS: e.FS, Dir: e.Path(folder.LogDir), UUID: e.Format.UUID, Boot: boot.Number(), Poisoned: e.markUnsynced, Logger: e.log, PreallocBytes: e.logAhead(),
	}
}

// logAhead is how many bytes a file of the log reserves ahead.
func (e *Engine) logAhead() int64 {
	ahead := min(wal.DefaultPreallocBytes, e.o.Budget/64)
	if e.o.LogAhead > 0 {
		ahead = min(ahead, e.o.LogAhead)
	}
	return max(MinLogAhead, ahead)
}

// ReadLogOptions are LogOptions for who reads the log: after an fsync that failed, this boot's frames may be lost, too.
func (e *Engine) ReadLogOptions() wal.Options {
	o := e.LogOptions()
	if e.unsynced() {
		o.Boot = 0
	}
	return o
}

// MinLogAhead is the least that is reserved ahead in the log.
const MinLogAhead = 64 << 10

func (e *Engine) indexOptions() index.Options {
	return index.Options{
		FS: e.FS, Path: e.Path(folder.IndexName), UUID: e.Format.UUID, Halted: e.markUnsynced, ReadOnly: e.o.ReadOnly, Logger: e.log,
	}
}
