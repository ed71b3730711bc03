package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

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

// openOrRebuild is openEngine, once more with a new index if the old one turns out to be damaged on the way.
func openOrRebuild(ctx context.Context, dir string, o Options) (*engine, error) {
	e, err := openEngine(ctx, dir, o, nil)
	if isIndexDamage(err) {
		return openEngine(ctx, dir, o, err)
	}
	return e, err
}

// openEngine opens what is in dir, or makes a new store there: FORMAT, segments, index, log, Bloom filter, in this
// order. The caller holds the lock. A doubt about the index has it built anew.
func openEngine(ctx context.Context, dir string, o Options, doubt error) (opened *engine, err error) {
	e := &engine{
		dir: dir, o: o, fs: o.fs, log: o.Logger, workers: read.NewWorkers(),
		catalog: catalog.New(),
		pins:    lease.NewPins(), barriers: barriers{turn: make(chan struct{}, 1)},
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			e.abandon()
		}
	}()
	if err := e.openFormat(); err != nil {
		return nil, err
	}
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
	e.hasher = kv.NewHasher(e.format.Seed)
	e.set, err = segments.Open(segments.Options{
		FS: e.fs, Dir: e.path(folder.SegmentsDir), UUID: e.format.UUID, Seed: e.format.Seed, SegmentBytes: o.SegmentBytes,
		AllocateStep: e.allocateStep(), Ahead: e.ahead,
		Poisoned: e.markUnsynced, ReadOnly: o.ReadOnly, Overtaken: e.overtaken, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	e.space.grown, e.space.log = e.set.Extended, func() int64 {
		if e.wal == nil {
			return 0
		}
		return e.wal.Bytes()
	}
	r, err := e.recover(ctx, doubt)
	if err != nil {
		return nil, err
	}
	e.search = prefix.Store{
		Hasher: e.hasher, Index: e.ix, Bloom: &e.bloom, Segments: e.set, WasDamaged: e.catalog.IsFlagged, Cause: e.foundBad,
		Collisions: &e.count.collisions, BloomFalse: &e.count.bloomFalse,
	}
	e.source = read.Source{Segments: e.set, Workers: e.workers, Cause: e.foundBad, Report: e.reportDamage}
	e.leases = lease.Store{Search: &e.search, Pins: e.pins, Committed: e.awaitCommit}
	e.writes = write.Store{
		Store: &e.leases, Rows: &e.source, Engine: putEngine{e},
		Gate: &e.gate, Seq: &e.birth, Grown: &e.growth, Replaced: &e.count.replaced,
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
	if !e.pending.on.Load() && e.bloom.Load() == nil && e.counts().Blocks == 0 {
		e.bloom.Store(index.NewBloom(minBloomKeys, o.BloomFPR))
	}
	e.dirty.Store(r.Rebuilt || r.Changed) // the worker's first checkpoint keeps what was recovered
	if err := e.endUnsynced(ctx); err != nil {
		return nil, err
	}
	return e, e.findFloor()
}

// recover finds out what the store is. A reader beside a writer takes what the last checkpoint wrote.
func (e *engine) recover(ctx context.Context, doubt error) (*recovery.Result, error) {
	e.pending.on.Store(true) // until it is known whether the Bloom filter's file can be used
	in := recovery.Input{
		FS: e.fs, Dir: e.dir, Segments: e.set, Bloom: e.path(folder.BloomName), Hasher: e.hasher, Unsynced: e.unsynced(),
		ReadOnly: e.o.ReadOnly, Doubt: doubt, Logger: e.log, IndexOptions: e.indexOptions(), LogOptions: e.readOptions(),
		Rank: e.order, AddKey: e.pending.add,
	}
	if e.o.Progress != nil {
		in.Progress = func(done, total int64) { e.o.Progress(Progress{What: "scan segments", Done: done, Total: total}) }
	}
	run := func() (recovery.Result, error) { return recovery.Run(ctx, in) }
	if e.o.beside {
		run = func() (recovery.Result, error) { return recovery.Beside(in) }
	}
	r, err := run()
	if e.ix = r.Index; errors.Is(err, wal.ErrVersion) || errors.Is(err, ErrVersion) && !e.o.beside {
		return nil, folder.OfAnotherRelease(err)
	}
	if err != nil {
		return nil, err
	}
	e.catalog, e.unsealed, e.doubts, e.gone = r.Catalog, r.Leftover, r.Doubts, r.Absent
	e.birth.Store(r.Seq)
	e.clock.Store(r.Clock)
	e.planBloom(&r)
	return &r, nil
}

// abandon closes whatever is open, also of an Open that failed, though matches can see it.
func (e *engine) abandon() (err error) {
	e.bloomLoad.drop()
	if e.wal != nil {
		err = e.wal.Close()
	}
	if e.ix != nil {
		err = errors.Join(err, e.ix.Close())
	}
	if e.set != nil {
		err = errors.Join(err, e.set.Abandon())
	}
	return errors.Join(err, e.unlock())
}

func (e *engine) unlock() error {
	if e.lock == nil {
		return nil
	}
	return e.lock.Release()
}

// openFormat reads FORMAT, or writes it for a new store.
func (e *engine) openFormat() error {
	var restored bool
	var err error
	e.format, restored, err = folder.Read(e.fs, e.dir)
	switch {
	case err == nil && e.format.ReadOnly != 0 && !e.o.ReadOnly:
		return fmt.Errorf("%s: %w: features %#x can only be read by this release", e.path(folder.FormatName), ErrVersion, e.format.ReadOnly)
	case err == nil && restored:
		e.log.Warn("FORMAT was lost and is restored from a segment", "dir", e.dir)
		if e.o.ReadOnly {
			return nil
		}
		// Whatever else has that name is neither replaced, nor done without: the segments that say whose it is may all go.
		switch err := vfs.CheckOwn(e.fs, e.path(folder.FormatName), folder.IsFormat); {
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
		return folder.NoStoreError(e.dir)
	case e.o.ReadOnly, errors.Is(err, ErrVersion):
		return err
	default: // under the lock once more: what is there may be there since then
		if err := folder.RefuseOthers(e.fs, e.dir); err != nil {
			return err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		e.format = folder.New()
	}
	if err := e.makeFolders(); err != nil {
		return err
	}
	return vfs.WriteAtomic(e.fs, e.dir, e.path(folder.FormatName), e.format.Encode(), folder.IsFormat)
}

func (e *engine) makeFolders() error {
	for _, name := range []string{folder.LogDir, folder.SegmentsDir} {
		if err := e.fs.Mkdir(e.path(name)); err != nil {
			return err
		}
	}
	return nil
}

// startLog begins a new log file whose head repeats the small state. The files before it stay until a checkpoint.
func (e *engine) startLog(ctx context.Context, r *recovery.Result) error {
	head, size := e.laterHead(e.openEnds())
	sound := e.set.Err() == nil                                  // else nothing is written
	if sound && size > int64(maxHead) && len(head()) > maxHead { // so many records wait to be destroyed that the log could never begin
		e.catalog.Defer(r.Listed)
		e.ckptMu.Lock()
		err := e.reclaimAfter(ctx, func(behind bool) error { // its frames are read: the log that is to begin is the barrier
			if behind {
				if err := e.set.Sync(); err != nil {
					return err
				}
			}
			return wal.SyncFiles(e.walOptions())
		})
		e.ckptMu.Unlock()
		if err != nil && !errors.Is(err, ErrNotDestroyed) {
			return err
		}
		e.catalog.BuryAt(slices.Collect(maps.Keys(r.Listed))...) // though its segment may be gone
		head, _ = e.laterHead(e.openEnds())
	}
	o, id, lsn := e.walOptions(), max(r.Log.LastFile, r.Applied.WALFile)+1, max(r.Log.LastLSN, r.Applied.LSN)+1
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

func (e *engine) walOptions() wal.Options {
	ahead := min(wal.DefaultPreallocBytes, e.o.Budget/64)
	if e.o.logAhead > 0 {
		ahead = min(ahead, e.o.logAhead)
	}
	return wal.Options{
		FS: e.fs, Dir: e.path(folder.LogDir), UUID: e.format.UUID, Boot: boot.Number(), Poisoned: e.markUnsynced, Logger: e.log, PreallocBytes: max(minLogAhead, ahead),
	}
}

// readOptions are walOptions for who reads the log: after an fsync that failed, this boot's frames may be lost, too.
func (e *engine) readOptions() wal.Options {
	o := e.walOptions()
	if e.unsynced() {
		o.Boot = 0
	}
	return o
}

// minLogAhead is the least that is reserved ahead in the log.
const minLogAhead = 64 << 10

func (e *engine) indexOptions() index.Options {
	return index.Options{
		FS: e.fs, Path: e.path(folder.IndexName), UUID: e.format.UUID, Halted: e.markUnsynced, ReadOnly: e.o.ReadOnly, Logger: e.log,
	}
}
