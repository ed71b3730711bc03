package repair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/boot"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/wal"
)

// damagedStore is one, as far as it can be read. It is recovered in memory as one whose index is lost: the segments are
// scanned, and the log is replayed over what they hold. What is sound of index.db says what the log cannot, and bears witness
// to what is lost.
type damagedStore struct {
	dir string
	o   Options
	out *Repaired
	fs  *salvageFS

	format folder.Format
	hasher kv.Hasher
	set    *segments.Set
	log    *recovery.Log // what can be read of the log
	known  index.Applied // what index.db has beside its rows
	found  recovery.Result

	index   index.Salvaged   // no Entries if they cannot be of the last checkpoint
	indexed bool             // its store row is there, and it is this store's
	torn    bool             // the log ends in bytes that are no frame
	later   *catalog.Catalog // of the index, if the log ends before it
	exact   bool             // expected is all that was stored, and nothing else

	entries  map[recovery.ID]index.Entry // that the recovery ended with
	expected map[recovery.ID]index.Entry // that index and log name
	saved    map[recovery.ID]bool
	failed   map[recovery.ID]error // why a record of entries was not saved
	unranked int                   // blocks whose recency the index does not tell

	unusable map[string]*damage.Error // why files and folders are hidden, by path
}

func newDamagedStore(dir string, o Options, out *Repaired) *damagedStore {
	w := &damagedStore{
		dir: dir, o: o, out: out, entries: map[recovery.ID]index.Entry{}, expected: map[recovery.ID]index.Entry{},
		saved: map[recovery.ID]bool{}, failed: map[recovery.ID]error{}, unusable: map[string]*damage.Error{},
	}
	below := o.FS
	if below == nil {
		below = vfs.OS
	}
	w.fs = &salvageFS{FS: below, hidden: map[string]bool{}, unreadable: func(file string, off int64, err error) {
		w.damaged(damage.Wrap(file, off, "block", err))
	}}
	return w
}

func (w *damagedStore) path(name string) string { return filepath.Join(w.dir, name) }

func (w *damagedStore) segmentPath(id uint64) string { return folder.SegmentPath(w.dir, id) }

func (w *damagedStore) logOptions() wal.Options {
	o := wal.Options{Dir: w.path(folder.LogDir), UUID: w.format.UUID, Boot: boot.Number(), Logger: slog.New(slog.DiscardHandler)}
	if folder.Unsynced(w.fs, w.dir) { // this boot's frames may be lost, too
		o.Boot = 0
	}
	return vfs.On(w.fs, o)
}

func (w *damagedStore) indexOptions() index.Options {
	return vfs.On(w.fs, index.Options{Path: w.path(folder.IndexName), UUID: w.format.UUID, ReadOnly: true, Logger: slog.New(slog.DiscardHandler)})
}

// hide keeps a file or folder that is of no use from the recovery.
func (w *damagedStore) hide(path string, why *damage.Error) {
	w.fs.hidden[path] = true
	w.unusable[path] = why
	w.damaged(why)
}

// identify finds the store's UUID and seed: what FORMAT says, unless no segment agrees and others do.
func (w *damagedStore) identify() error {
	type identity struct {
		uuid kv.UUID
		seed kv.Seed
	}
	name := w.path(folder.FormatName)
	f, ferr := folder.ReadFile(w.fs, w.dir)
	if errors.Is(ferr, vfs.ErrVersion) {
		return ferr
	}
	names, err := w.fs.List(w.path(folder.SegmentsDir))
	if err != nil {
		w.hide(w.path(folder.SegmentsDir), damage.Wrap(w.path(folder.SegmentsDir), 0, "folder", err))
	}
	votes, whose := map[identity]int{}, map[string]identity{}
	var best identity
	var segs int
	for _, n := range names {
		if !strings.HasSuffix(n, ".seg") {
			continue
		}
		segs++
		uuid, seed, ok, err := segments.Identify(onlyFS{w.fs, n}, w.path(folder.SegmentsDir))
		if errors.Is(err, segments.ErrVersion) {
			return fmt.Errorf("%w: %w: %s", vfs.ErrVersion, err, folder.AnotherRelease)
		}
		if id := (identity{uuid, seed}); err == nil && ok {
			whose[n] = id
			if votes[id]++; votes[id] > votes[best] {
				best = id
			}
		}
	}
	switch own := (identity{f.UUID, f.Seed}); {
	case ferr == nil && (votes[own] > 0 || len(votes) == 0):
	case len(votes) == 0 && segs == 0 && errors.Is(ferr, fs.ErrNotExist):
		return folder.NoStoreError(w.dir)
	case len(votes) == 0:
		return damage.Wrap(name, 0, "FORMAT", fmt.Errorf("%w; no segment has a sound header, so the hash seed is lost, without which no prompt finds its records", ferr))
	default:
		if ferr == nil {
			ferr = damage.New(name, 40, "store UUID in FORMAT", best.uuid, f.UUID)
		} else if errors.Is(ferr, fs.ErrNotExist) {
			ferr = damage.Wrap(name, 0, "FORMAT", fs.ErrNotExist)
		}
		w.damaged(asCorrupt(ferr, name, "FORMAT"))
		w.note("what FORMAT said is taken from a segment")
		f = folder.Format{Version: folder.Version, HashID: kv.HashID, UUID: best.uuid, Seed: best.seed}
	}
	for n, id := range whose {
		if id != (identity{f.UUID, f.Seed}) {
			path := w.path(folder.SegmentsDir + "/" + n)
			w.hide(path, damage.New(path, 16, "store UUID of a segment", f.UUID, id.uuid))
		}
	}
	w.format, w.hasher = f, kv.NewHasher(f.Seed)
	return nil
}

func asCorrupt(err error, file, what string) *damage.Error {
	var bad *damage.Error
	if errors.As(err, &bad) {
		return bad
	}
	return damage.Wrap(file, 0, what, err)
}

// read recovers the store in memory.
func (w *damagedStore) read(ctx context.Context) error {
	if err := w.hideUnusable(ctx); err != nil {
		return err
	}
	var err error
	if w.set, err = segments.Open(vfs.On(w.fs, segments.Options{
		Dir: w.path(folder.SegmentsDir), UUID: w.format.UUID, Seed: w.format.Seed, ReadOnly: true,
	})); err != nil {
		return err
	}
	if err := w.readLog(); err != nil {
		return err
	}
	if err := w.readIndex(); err != nil {
		return err
	}
	in := recovery.Input{
		FS: w.fs, Dir: w.dir, Segments: w.set, Hasher: w.hasher, ReadOnly: true, Logger: slog.New(slog.DiscardHandler),
		IndexOptions: w.indexOptions(), Rank: func(x index.Entry, clock uint64) uint64 { return clock << tickBits },
	}
	if w.o.Progress != nil {
		in.Progress = func(done, total int64) {
			w.o.Progress(engine.Progress{What: "scan segments", Done: done, Total: total})
		}
	}
	if w.found, err = recovery.Salvage(ctx, in, w.log, w.known); err != nil {
		return err
	}
	if w.indexed && w.index.Applied.LSN > w.log.LastLSN && w.log.HasFirst {
		// The end of the log is lost: the index has the later state.
		if head, err := recovery.ReadHead(w.index.Applied.Extra); err == nil {
			w.later = catalog.Of(&head, catalog.Place{})
			w.found.Adopt(&head, catalog.Place{File: w.path(folder.IndexName)})
		}
	}
	if err := w.collect(); err != nil {
		return err
	}
	w.expect()
	w.sayUnknown()
	return ctx.Err()
}

func (w *damagedStore) close() {
	if w.found.Index != nil {
		w.found.Index.Close()
	}
	if w.set != nil {
		w.set.Abandon()
	}
}

// hideUnusable looks at each file of segments and log by itself, and hides those that cannot be opened or are not this
// store's. The Bloom filter is of no use.
func (w *damagedStore) hideUnusable(ctx context.Context) error {
	w.fs.hidden[w.path(folder.BloomName)] = true
	hide := func(path, what string, err error) {
		if err != nil {
			w.hide(path, asCorrupt(err, path, what))
		}
	}
	names, _ := w.fs.List(w.path(folder.SegmentsDir))
	for _, n := range names {
		if path := w.path(folder.SegmentsDir + "/" + n); strings.HasSuffix(n, ".seg") {
			hide(path, "segment", w.mappable(path))
		}
	}
	names, err := w.fs.List(w.path(folder.LogDir))
	if err != nil {
		w.hide(w.path(folder.LogDir), damage.Wrap(w.path(folder.LogDir), 0, "folder", err))
	}
	for _, n := range names {
		if !strings.HasSuffix(n, ".wal") {
			continue
		}
		o := w.logOptions()
		o = vfs.On(onlyFS{w.fs, n}, o)
		_, err := wal.Replay(o, func(wal.Frame) error { return ctx.Err() })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, wal.ErrVersion) { // without it, what was deleted would be back
			return folder.OfAnotherRelease(err)
		}
		hide(w.path(folder.LogDir+"/"+n), "log file", err)
	}
	return nil
}

// mappable reports why a segment cannot be read at all.
func (w *damagedStore) mappable(path string) error {
	f, err := w.fs.Open(path, true)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size == 0 {
		return err
	}
	m, err := f.Map(info.Size)
	if err != nil {
		return err
	}
	return m.Close()
}

// readLog reads the log, and leaves out frames whose payload makes no sense.
func (w *damagedStore) readLog() error {
	var err error
	if w.log, err = recovery.ReadLog(w.logOptions()); errors.Is(err, vfs.ErrVersion) || errors.Is(err, wal.ErrVersion) {
		return folder.OfAnotherRelease(err)
	}
	if err != nil {
		return err
	}
	frames := w.log.Frames
	w.log.Frames = nil
	for _, f := range frames {
		if errors.Is(f.Err, vfs.ErrVersion) {
			return folder.OfAnotherRelease(f.Err) // without it, what was deleted would be back
		}
		err := readable(&f)
		if errors.Is(err, vfs.ErrVersion) {
			return folder.OfAnotherRelease(err)
		}
		if err != nil {
			w.log.Damage = append(w.log.Damage, asCorrupt(err, f.File, "log frame"))
			continue
		}
		w.log.Frames = append(w.log.Frames, f)
	}
	for _, d := range w.log.Damage {
		w.damaged(d)
	}
	// As after a reboot: records that the log names are read in full, and what took the place of a sound one gives it back.
	w.log.First.Boot, w.log.Barrier = "", 0
	if w.torn = w.log.Torn; w.torn {
		// What the torn end said may have been acknowledged: a record that no frame names is kept, if it is whole.
		last := w.log.Files[len(w.log.Files)-1]
		w.log.Damage = append(w.log.Damage, damage.New(w.path(folder.LogDir), 0, "log", "whole frames", fmt.Sprintf("a torn end behind frame %d", last.LastLSN)))
	}
	return nil
}

// readable says what is wrong with a frame whose checksum is right, descriptors of models included.
func readable(f *recovery.Frame) (err error) {
	switch op := f.Op.(type) {
	case nil:
		err = f.Err
	case oplog.Snapshot:
		err = unpackable(op.Models)
	case oplog.Model:
		_, err = op.Descriptor()
	}
	if err != nil && !errors.Is(err, damage.ErrCorrupt) {
		err = damage.Wrap(f.File, f.Offset, fmt.Sprintf("log frame %d", f.LSN), err)
	}
	return err
}

// unpackable says which of the descriptors in a log head cannot be unpacked.
func unpackable(models []oplog.Model) error {
	for i := range models {
		if _, err := models[i].Descriptor(); err != nil {
			return err
		}
	}
	return nil
}

// readIndex takes what is sound of index.db, if it is this store's.
func (w *damagedStore) readIndex() error {
	path := w.path(folder.IndexName)
	s, err := index.Salvage(w.indexOptions())
	switch {
	case errors.Is(err, index.ErrMissing):
		w.damaged(damage.Wrap(path, 0, "index", fs.ErrNotExist))
		return nil
	case err != nil:
		w.damaged(damage.Wrap(path, 0, "index", err))
		return nil
	}
	w.out.Damage = append(w.out.Damage, s.Damage...)
	if s.Known && s.UUID != w.format.UUID {
		w.damaged(damage.New(path, 0, "store UUID of the index", w.format.UUID, s.UUID))
		return nil
	}
	head, err := recovery.ReadHead(s.Applied.Extra)
	if errors.Is(err, vfs.ErrVersion) { // without it, what was deleted would be back
		return folder.OfAnotherRelease(fmt.Errorf("%s: copy of the log head: %w", path, err))
	}
	if err != nil || unpackable(head.Models) != nil {
		s.Applied.Extra = nil
	}
	if !s.Known || s.Older {
		s.Entries, s.Complete = nil, false // they may be of an older checkpoint: what became of them since, nobody knows
	}
	w.index, w.indexed = s, s.Known
	w.known = index.Applied{
		NextSeq: s.Applied.NextSeq, NextSegment: s.Applied.NextSegment, Clock: s.Applied.Clock, Extra: s.Applied.Extra,
	}
	return nil
}
