package db

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/dormousekv/dormouse/db/internal/engine"
)

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
