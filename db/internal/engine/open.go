package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/db/internal/recovery"
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
		Kept: o.Kept, Dir: dir, o: o, FS: o.FS, log: o.Logger, workers: read.NewWorkers(),
		Catalog:  catalog.New(),
		sessions: &sessionSet{open: o.Kept.open}, barriers: barriers{turn: make(chan struct{}, 1)}, rounds: newRounds(),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
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
	if was := e.Kept.uuid; was != (kv.UUID{}) && e.Format.UUID != was { // Resume, and another medium lies there
		return nil, e.another(e.Format.UUID)
	}
	e.Kept.uuid = e.Format.UUID
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
	e.Segments, err = segments.Open(vfs.On(e.FS, segments.Options{
		Dir: e.Path(folder.SegmentsDir), UUID: e.Format.UUID, Seed: e.Format.Seed, SegmentBytes: o.SegmentBytes,
		AllocateStep: e.allocateStep(), Ahead: e.ahead,
		Poisoned: e.markUnsynced, ReadOnly: o.ReadOnly, Overtaken: e.Overtaken, Logger: o.Logger,
	}))
	if err != nil {
		return nil, err
	}
	e.space.grown, e.space.extents, e.space.log = e.Segments.Extended, e.Segments.Extents, func() int64 {
		if e.wal == nil {
			return 0
		}
		return e.wal.Bytes() + e.sessions.bytes.Load()
	}
	r, err := e.recover(ctx, doubt)
	if err != nil {
		return nil, err
	}
	e.Search = prefix.Store{
		Hasher: e.Hasher, Index: e.Index, Bloom: &e.bloom, Segments: e.Segments, WasDamaged: e.Catalog.IsFlagged, Report: e.reportDamage,
		Collisions: &e.Count.Collisions, BloomFalse: &e.Count.BloomFalse,
	}
	e.again.Segments, e.again.Busy = e.Segments, e.ring.Busy
	e.Source = read.Source{
		Segments: e.Segments, Workers: e.workers, Ring: &e.ring, Again: &e.again, Named: e.Catalog.IsNamed, Cause: e.FoundBad, Report: e.reportDamage,
	}
	e.Leases = lease.Store{Search: &e.Search, Pins: e.Pins, Committed: e.awaitCommit}
	e.writes = write.Store{
		Store: &e.Leases, Rows: &e.Source, Engine: e,
		PublishGate: &e.publishGate, Seq: &e.seq, Grown: &e.growth, Replaced: &e.Count.Replaced,
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
	if !e.pending.on.Load() && e.bloom.Load() == nil && e.Counts().Blocks == 0 {
		e.bloom.Store(index.NewBloom(minBloomKeys, o.BloomFPR))
	}
	e.dirty.Store(r.Rebuilt || r.Changed) // the worker's first checkpoint keeps what was recovered
	if err := e.endUnsynced(ctx); err != nil {
		return nil, err
	}
	e.crowded.Store(int32(len(r.Log.Files)))
	return e, e.findWatermark()
}

// recover finds out what the store is. A reader beside a writer takes what the last checkpoint wrote, without what was removed since.
func (e *Engine) recover(ctx context.Context, doubt error) (*recovery.Result, error) {
	e.pending.on.Store(true) // until it is known whether the Bloom filter's file can be used
	in := recovery.Input{
		FS: e.FS, Dir: e.Dir, Segments: e.Segments, Bloom: e.Path(folder.BloomName), Hasher: e.Hasher, Unsynced: e.unsynced(),
		ReadOnly: e.o.ReadOnly, Doubt: doubt, Logger: e.log, IndexOptions: e.indexOptions(), LogOptions: e.ReadLogOptions(),
		Rank: e.order, AddKey: e.pending.add,
	}
	if e.o.Progress != nil {
		in.Progress = func(done, total int64) { e.o.Progress(Progress{What: "scan segments", Done: done, Total: total}) }
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
	e.Catalog, e.unsealed, e.Doubts, e.Absent, e.Lost = r.Catalog, r.Leftover, r.Doubts, r.Absent, r.Lost
	e.seq.Store(r.Seq)
	e.clock.Store(r.Clock)
	e.planBloom(&r)
	return &r, nil
}

// another is the error where another store lies at the place of the one that was open.
func (e *Engine) another(found kv.UUID) error {
	return fmt.Errorf("%s: %w: store %s lies where %s was", e.Dir, vfs.ErrForeign, found, e.Kept.uuid)
}

// stillHere fails where the store whose index is in doubt does not lie there any more, or another one does, which is not touched.
func (e *Engine) stillHere() error {
	f, err := folder.StillThere(e.FS, e.Dir)
	if was := e.Kept.uuid; err == nil && was != (kv.UUID{}) && f.UUID != was {
		err = e.another(f.UUID)
	}
	return err
}

// openFormat reads FORMAT, or writes it for a new store.
func (e *Engine) openFormat() error {
	var restored bool
	var err error
	e.Format, restored, err = folder.Read(e.FS, e.Dir)
	switch {
	case err == nil && !e.o.ReadOnly && e.checkFeatures() != nil:
		return e.checkFeatures()
	case err == nil && restored:
		e.log.Warn("FORMAT was lost and is restored from a segment", "dir", e.Dir)
		if e.o.ReadOnly {
			return nil
		}
		// Whatever else has that name is neither replaced, nor done without: the segments that say whose it is may all go.
		switch err := vfs.CheckOwn(e.FS, e.Path(folder.FormatName), folder.IsFormat); {
		case errors.Is(err, fs.ErrNotExist):
			if err := e.refuseUnproven(); err != nil {
				return err
			}
		case err != nil:
			return err
		}
	case err == nil:
		if e.o.ReadOnly {
			return nil
		}
		return e.makeFolders()
	case e.o.ReadOnly && errors.Is(err, fs.ErrNotExist):
		return folder.NoStoreError(e.Dir)
	case e.o.ReadOnly, errors.Is(err, vfs.ErrVersion):
		return err
	default: // under the lock once more: what is there may be there since then
		if err := folder.RefuseOthers(e.FS, e.Dir); err != nil {
			return err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		e.Format = folder.New()
	}
	if err := e.makeFolders(); err != nil {
		return err
	}
	return vfs.WriteAtomic(e.FS, e.Dir, e.Path(folder.FormatName), e.Format.Encode(), folder.IsFormat)
}

func (e *Engine) makeFolders() error {
	for _, name := range []string{folder.LogDir, folder.SegmentsDir} {
		if err := e.FS.Mkdir(e.Path(name)); err != nil {
			return err
		}
	}
	return nil
}

// startLog begins a new log file whose head repeats the small state. The files before it stay until a checkpoint.
func (e *Engine) startLog(ctx context.Context, r *recovery.Result) error {
	head, size := e.laterHead(e.openEnds())
	sound := e.Segments.Err() == nil                             // else nothing is written
	if sound && size > int64(maxHead) && len(head()) > maxHead { // so many records wait to be destroyed that the log could never begin
		e.Catalog.Defer(r.Listed)
		e.ckptMu.Lock()
		_, err := e.reclaimAfter(ctx, nil, func(behind bool) error { // its frames are read: the log that is to begin is the barrier
			if behind {
				if err := e.Segments.Sync(); err != nil {
					return err
				}
			}
			return wal.SyncFiles(e.LogOptions())
		})
		e.ckptMu.Unlock()
		if err != nil && !errors.Is(err, ErrNotDestroyed) {
			return err
		}
		e.Catalog.BuryAt(slices.Collect(maps.Keys(r.Listed))...) // though its segment may be gone
		head, _ = e.laterHead(e.openEnds())
	}
	o, id, lsn := e.LogOptions(), max(r.Log.LastFile, r.Applied.WALFile)+1, max(r.Log.LastLSN, r.Applied.LSN)+1
	if sound && len(r.Listed) > 0 { // before a segment is cut behind what lives: what lay there, and was lost, must not look as if somebody had cut it
		var err error
		if e.wal, err = wal.Create(o, id, lsn, head()); !errors.Is(err, vfs.ErrNoSpace) {
			return err
		}
	}
	var err error
	if sound && (r.Rebuilt || len(r.Log.Files) == 0) { // the log is what says that there is a store
		e.wal, err = wal.Create(o, id, lsn, head())
	} else {
		e.wal, err = wal.CreateLater(o, id, lsn, head)
	}
	return err
}

// maxHead is the longest head of a log file. A variable for tests.
var maxHead = wal.MaxPayload

// LogOptions are those of the log.
func (e *Engine) LogOptions() wal.Options {
	ahead := min(wal.DefaultPreallocBytes, e.o.Budget/64)
	if e.o.LogAhead > 0 {
		ahead = min(ahead, e.o.LogAhead)
	}
	return vfs.On(e.FS, wal.Options{
		Dir: e.Path(folder.LogDir), UUID: e.Format.UUID, Boot: boot.Number(), Poisoned: e.markUnsynced, Logger: e.log, PreallocBytes: max(MinLogAhead, ahead),
	})
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
	return vfs.On(e.FS, index.Options{
		Path: e.Path(folder.IndexName), UUID: e.Format.UUID, Halted: e.markUnsynced, ReadOnly: e.o.ReadOnly, Logger: e.log,
	})
}
