package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/wal"
)

// wreck is a damaged store, as far as it can be read. It is recovered in memory as one whose index is lost: the segments are
// scanned, and the log is replayed over what they hold. What is sound of index.db says what the log cannot, and bears witness
// to what is lost.
type wreck struct {
	dir string
	o   RepairOptions
	out *Repaired
	fs  *salvageFS
	e   *engine
	r   *recovery

	index   index.Salvaged   // no Entries if they cannot be of the last checkpoint
	indexed bool             // its store row is there, and it is this store's
	torn    bool             // the log ends in bytes that are no frame
	later   *catalog.Catalog // of the index, if the log ends before it
	exact   bool             // expected is all that was stored, and nothing else

	entries  map[recordID]index.Entry // that the recovery ended with
	expected map[recordID]index.Entry // that index and log name
	saved    map[recordID]bool
	failed   map[recordID]error // why a record of entries was not saved
	unranked int                // blocks whose recency the index does not tell

	unusable map[string]*CorruptError // why files and folders are hidden, by path
}

func newWreck(dir string, o RepairOptions, out *Repaired) *wreck {
	w := &wreck{
		dir: dir, o: o, out: out, entries: map[recordID]index.Entry{}, expected: map[recordID]index.Entry{},
		saved: map[recordID]bool{}, failed: map[recordID]error{}, unusable: map[string]*CorruptError{},
	}
	below := o.fs
	if below == nil {
		below = vfs.OS
	}
	w.fs = &salvageFS{FS: below, hidden: map[string]bool{}, unreadable: func(file string, off int64, err error) {
		w.damaged(damage.Wrap(file, off, "block", err))
	}}
	opts := Options{ReadOnly: true, Progress: o.Progress, Logger: slog.New(slog.DiscardHandler), fs: w.fs}.withDefaults()
	w.e = &engine{
		dir: dir, o: opts, fs: w.fs, log: opts.Logger, catalog: catalog.New(), pins: lease.NewPins(),
	}
	return w
}

// hide keeps a file or folder that is of no use from the recovery.
func (w *wreck) hide(path string, why *CorruptError) {
	w.fs.hidden[path] = true
	w.unusable[path] = why
	w.damaged(why)
}

// identify finds the store's UUID and seed: what FORMAT says, unless no segment agrees and others do.
func (w *wreck) identify() error {
	type identity struct {
		uuid kv.UUID
		seed kv.Seed
	}
	name := w.e.path(formatName)
	f, ferr := readFormatFile(w.fs, w.dir)
	if errors.Is(ferr, ErrVersion) {
		return ferr
	}
	names, err := w.fs.List(w.e.path(segmentsDir))
	if err != nil {
		w.hide(w.e.path(segmentsDir), damage.Wrap(w.e.path(segmentsDir), 0, "folder", err))
	}
	votes, whose := map[identity]int{}, map[string]identity{}
	var best identity
	var segs int
	for _, n := range names {
		if !strings.HasSuffix(n, ".seg") {
			continue
		}
		segs++
		uuid, seed, ok, err := segments.Identify(onlyFS{w.fs, n}, w.e.path(segmentsDir))
		if errors.Is(err, segments.ErrVersion) {
			return fmt.Errorf("%w: %w: %s", ErrVersion, err, anotherRelease)
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
		return noStoreError(w.dir)
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
		f = storeFormat{Version: storeVersion, HashID: kv.HashID, UUID: best.uuid, Seed: best.seed}
	}
	for n, id := range whose {
		if id != (identity{f.UUID, f.Seed}) {
			path := w.e.path(segmentsDir + "/" + n)
			w.hide(path, damage.New(path, 16, "store UUID of a segment", f.UUID, id.uuid))
		}
	}
	w.e.format, w.e.hasher = f, kv.NewHasher(f.Seed)
	return nil
}

func asCorrupt(err error, file, what string) *CorruptError {
	var bad *CorruptError
	if errors.As(err, &bad) {
		return bad
	}
	return damage.Wrap(file, 0, what, err)
}

// read recovers the store in memory.
func (w *wreck) read(ctx context.Context) error {
	if err := w.hideUnusable(ctx); err != nil {
		return err
	}
	var err error
	if w.e.set, err = segments.Open(segments.Options{
		FS: w.fs, Dir: w.e.path(segmentsDir), UUID: w.e.format.UUID, Seed: w.e.format.Seed, ReadOnly: true,
	}); err != nil {
		return err
	}
	w.r = &recovery{e: w.e, rebuild: true}
	if err := w.readLog(); err != nil {
		return err
	}
	w.readIndex()
	w.e.ix = index.Memory()
	w.e.planBloom(w.r) // there is none to be seen
	if err := w.r.scan(ctx); err != nil {
		return err
	}
	w.r.numbers()
	if err := w.r.apply(); err != nil {
		return err
	}
	if w.indexed && w.index.Applied.LSN > w.r.replayed.LastLSN && w.r.hasFirst {
		// The end of the log is lost: the index has the later state.
		if head, err := readHead(w.index.Applied.Extra); err == nil {
			w.later = catalog.Of(&head, catalog.Place{})
			w.r.adopt(&head, catalog.Place{File: w.e.path(indexName)})
		}
	}
	if err := w.collect(); err != nil {
		return err
	}
	w.expect()
	w.sayUnknown()
	return ctx.Err()
}

func (w *wreck) close() {
	w.e.ix.Close()
	w.e.set.Abandon()
}

// hideUnusable looks at each file of segments and log by itself, and hides those that cannot be opened or are not this
// store's. The Bloom filter is of no use.
func (w *wreck) hideUnusable(ctx context.Context) error {
	w.fs.hidden[w.e.path(bloomName)] = true
	hide := func(path, what string, err error) {
		if err != nil {
			w.hide(path, asCorrupt(err, path, what))
		}
	}
	names, _ := w.fs.List(w.e.path(segmentsDir))
	for _, n := range names {
		if path := w.e.path(segmentsDir + "/" + n); strings.HasSuffix(n, ".seg") {
			hide(path, "segment", w.mappable(path))
		}
	}
	names, err := w.fs.List(w.e.path(walDir))
	if err != nil {
		w.hide(w.e.path(walDir), damage.Wrap(w.e.path(walDir), 0, "folder", err))
	}
	for _, n := range names {
		if !strings.HasSuffix(n, ".wal") {
			continue
		}
		o := w.e.walOptions()
		o.FS = onlyFS{w.fs, n}
		_, err := wal.Replay(o, func(wal.Frame) error { return ctx.Err() })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, wal.ErrVersion) { // without it, what was deleted would be back
			return ofAnotherRelease(err)
		}
		hide(w.e.path(walDir+"/"+n), "log file", err)
	}
	return nil
}

// mappable reports why a segment cannot be read at all.
func (w *wreck) mappable(path string) error {
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
func (w *wreck) readLog() error {
	r := w.r
	if err := r.readLog(); err != nil {
		return err
	}
	frames := r.frames
	r.frames = nil
	for _, f := range frames {
		if errors.Is(f.err, ErrVersion) {
			return f.err // without it, what was deleted would be back
		}
		if err := readable(&f); err != nil {
			r.replayed.Damage = append(r.replayed.Damage, asCorrupt(err, f.File, "log frame"))
			continue
		}
		r.frames = append(r.frames, f)
	}
	for _, d := range r.replayed.Damage {
		w.damaged(d)
	}
	// As after a reboot: records that the log names are read in full, and what took the place of a sound one gives it back.
	r.first.Boot, r.barrier = "", 0
	if w.torn = r.replayed.Torn; w.torn {
		// What the torn end said may have been acknowledged: a record that no frame names is kept, if it is whole.
		last := r.replayed.Files[len(r.replayed.Files)-1]
		r.replayed.Damage = append(r.replayed.Damage, damage.New(w.e.path(walDir), 0, "log", "whole frames", fmt.Sprintf("a torn end behind frame %d", last.LastLSN)))
	}
	return nil
}

// readable says what is wrong with a frame whose checksum is right, descriptors of models included.
func readable(f *logFrame) (err error) {
	switch op := f.op.(type) {
	case nil:
		err = f.err
	case oplog.Snapshot:
		err = unpackable(op.Models)
	case oplog.Model:
		_, err = op.Descriptor()
	}
	if err != nil {
		return asCorrupt(err, f.File, fmt.Sprintf("log frame %d", f.LSN))
	}
	return nil
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
func (w *wreck) readIndex() {
	path := w.e.path(indexName)
	s, err := index.Salvage(w.e.indexOptions())
	switch {
	case errors.Is(err, index.ErrMissing):
		w.damaged(damage.Wrap(path, 0, "index", fs.ErrNotExist))
		return
	case err != nil:
		w.damaged(damage.Wrap(path, 0, "index", err))
		return
	}
	w.out.Damage = append(w.out.Damage, s.Damage...)
	if s.Known && s.UUID != w.e.format.UUID {
		w.damaged(damage.New(path, 0, "store UUID of the index", w.e.format.UUID, s.UUID))
		return
	}
	if head, err := readHead(s.Applied.Extra); err != nil || unpackable(head.Models) != nil {
		s.Applied.Extra = nil
	}
	if !s.Known || s.Older {
		s.Entries, s.Complete = nil, false // they may be of an older checkpoint: what became of them since, nobody knows
	}
	w.index, w.indexed = s, s.Known
	w.r.applied = index.Applied{
		NextBirth: s.Applied.NextBirth, NextSegment: s.Applied.NextSegment, Clock: s.Applied.Clock, Extra: s.Applied.Extra,
	}
}
