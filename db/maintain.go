package db

import (
	"context"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/engine"
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
			did, err := e.Compact(ctx, engine.CompactOptions{LiveShare: o.LiveShare, All: o.All, Progress: progress(o.Progress), Least: s.hidden.CompactLeast})
			out = Compacted(did)
			return err
		})
	})
	return out, err
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
