package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/wal"
)

// Checkpoint makes everything that was acknowledged so far durable, moves it from the log to the index, and deletes
// the log files that are no longer needed.
func (s *Store) Checkpoint(ctx context.Context) error {
	return s.onIndex(ctx, func() error { return s.using(func(e *engine.Engine) error { return e.Checkpoint(ctx) }) })
}

// Sync makes everything that was acknowledged so far durable, and destroys the bytes of what was deleted. Where refs went with that, it
// makes a checkpoint and writes the index anew, so that no file holds their names and metadata. It returns a [*PendingError] if open matches can still see some of those.
func (s *Store) Sync(ctx context.Context) error {
	return s.onIndex(ctx, func() error {
		return s.using(func(e *engine.Engine) error {
			if err := e.SyncAll(ctx); err != nil {
				return err
			}
			if n, bytes := e.Segments.Pending(); n > 0 || e.Segments.PendingUnlinks() > 0 {
				open, _ := e.Segments.Leases()
				return &PendingError{Records: n, Bytes: bytes, Segments: e.Segments.PendingUnlinks(), Leases: open}
			}
			return nil
		})
	})
}

// CompactOptions say what is worth rewriting.
type CompactOptions struct {
	// LiveShare is the share of live bytes under which a segment is rewritten. 0: one half. 1: every segment that is
	// not wholly alive.
	LiveShare float64
	All       bool // every segment to which nothing is appended is rewritten, whatever that gives
	Progress  func(Progress)

	// These are for [Compact] only, and what they are in [Options].
	AllowSharedDir bool
	Logger         *slog.Logger

	least int64 // bytes that rewriting segments must give back in all
}

// Validate returns an error that names the field at fault, its value, and what is allowed.
func (o CompactOptions) Validate() error {
	if !(o.LiveShare >= 0 && o.LiveShare <= 1) { // nor NaN
		return fmt.Errorf("db: CompactOptions.LiveShare is %v: expected a share of up to 1, or 0 for one half", o.LiveShare)
	}
	return nil
}

// Compacted says what a compaction did. All is zero but for Before and After, which are the same, if there was nothing to gain.
type Compacted struct {
	Segments int   // rewritten
	Records  int   // moved
	Bytes    int64 // moved
	// Before and After are the allocated bytes of all files. In a store that is in use, After may have more room that is kept ahead of
	// log and records.
	Before, After int64
}

// Compact gives space back: it moves live records out of segments that are mostly dead, merges small segments of one model, and
// rewrites index.db without its free pages. Where nothing is to be gained it changes nothing. Reads and puts go on meanwhile. Cancelled,
// it leaves what is done. A segment that cannot be read or changed just now is left as it is, and is the error after the others are done.
func (s *Store) Compact(ctx context.Context, o CompactOptions) (Compacted, error) {
	if err := o.Validate(); err != nil {
		return Compacted{}, err
	}
	var out Compacted
	err := s.onIndex(ctx, func() (err error) {
		return s.using(func(e *engine.Engine) error {
			did, err := e.Compact(ctx, engine.CompactOptions{LiveShare: o.LiveShare, All: o.All, Progress: progress(o.Progress), Least: o.least})
			out = Compacted(did)
			return err
		})
	})
	return out, err
}

// Compact is [Store.Compact] of a store that nobody has open. It evicts nothing, and makes no store where there is none
// (fs.ErrNotExist). What is lost and can be made anew is: FORMAT, the index, the Bloom filter. A store that was left by a process that
// was killed is recovered, as by [Open].
//
// The files of a store that was closed occupy no more than before, unless one was made anew: segments are rewritten only if that gives
// back more than the rewriting itself may take.
func Compact(ctx context.Context, dir string, o CompactOptions) (Compacted, error) {
	if err := o.Validate(); err != nil {
		return Compacted{}, err
	}
	if _, err := LostFormat(dir); err != nil { // Open would make a store where there is none
		return Compacted{}, err
	}
	before, err := folder.Bytes(vfs.OS, dir)
	if err != nil {
		return Compacted{}, err
	}
	kept, err := wal.KeptAhead(vfs.OS, filepath.Join(dir, folder.LogDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Compacted{Before: before, After: before}, err
	}
	// Records move to new segments, the index says so in new pages, and the log goes on for that.
	o.least = 8*engine.BlockBytes + max(0, engine.MinLogAhead-kept)
	s, err := Open(ctx, dir, Options{
		Budget: 1 << 50, MinFree: -1, SegmentBytes: 64 << 20, CheckpointInterval: -1, logAhead: max(kept, engine.MinLogAhead),
		AllowSharedDir: o.AllowSharedDir, Progress: o.Progress, Logger: o.Logger,
	})
	if err != nil {
		return Compacted{Before: before, After: before}, err
	}
	out, err := s.Compact(ctx, o)
	err = errors.Join(err, s.Close())
	out.Before = before
	after, merr := folder.Bytes(vfs.OS, dir)
	out.After = after
	return out, errors.Join(err, merr)
}

// Trim answers memory pressure: maps, pools and pages read ahead are dropped, the garbage collector runs, and a checkpoint is made. No
// record goes.
func (s *Store) Trim(ctx context.Context) error {
	return s.onIndex(ctx, func() error { return s.using(func(e *engine.Engine) error { return e.Trim(ctx) }) })
}

// Shrink answers storage pressure: it evicts, coldest first, until the store's files occupy bytes or less, and returns
// what they occupy then. Pinned and leased prefixes stay.
func (s *Store) Shrink(ctx context.Context, bytes int64) (int64, error) {
	var out int64
	err := s.onIndex(ctx, func() (err error) {
		return s.using(func(e *engine.Engine) error {
			out, err = e.Shrink(ctx, bytes)
			return err
		})
	})
	return out, err
}
