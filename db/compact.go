package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/segments"
)

// CompactOptions say what is worth rewriting.
type CompactOptions struct {
	// LiveShare is the share of live bytes under which a segment is rewritten. 0: one half. 1: every segment that is
	// not wholly alive.
	LiveShare float64
	Progress  func(Progress)
}

// Validate returns an error that names the field at fault, its value, and what is allowed.
func (o CompactOptions) Validate() error {
	if !(o.LiveShare >= 0 && o.LiveShare <= 1) { // nor NaN
		return fmt.Errorf("db: CompactOptions.LiveShare is %v: expected a share of up to 1, or 0 for one half", o.LiveShare)
	}
	return nil
}

// Compacted says what a compaction did.
type Compacted struct {
	Segments      int   // rewritten
	Records       int   // moved
	Bytes         int64 // moved
	Before, After int64 // allocated bytes of all files
}

// Compact gives space back: it moves live records out of segments that are mostly dead, merges small segments, and
// rewrites index.db without its free pages. Reads and puts go on meanwhile. Cancelled, it leaves what is done. A segment that cannot
// be read or changed just now is left as it is, and is the error after the others are done.
func (s *Store) Compact(ctx context.Context, o CompactOptions) (Compacted, error) {
	var out Compacted
	err := s.onIndex(ctx, func() (err error) {
		out, err = s.compactOnce(ctx, o)
		return err
	})
	return out, err
}

func (s *Store) compactOnce(ctx context.Context, o CompactOptions) (Compacted, error) {
	if err := o.Validate(); err != nil {
		return Compacted{}, err
	}
	e, err := s.enter()
	if err != nil {
		return Compacted{}, err
	}
	defer s.leave()
	if err := e.poisoned(); err != nil {
		return Compacted{}, err
	}
	if o.LiveShare == 0 {
		o.LiveShare = 0.5
	}
	out := Compacted{Before: e.measure()}
	if err := e.checkpoint(ctx); err != nil && !errors.Is(err, errUndestroyed) {
		return out, err
	}
	err = e.rewrite(ctx, o.worth(e), o.Progress, &out)
	// One checkpoint makes the moves durable and destroys the old places; the next finds the segments empty. What cannot be moved or
	// destroyed keeps nothing else from being done. It is said in the end, if it still stands.
	var undone error
	for range 2 {
		if undone == nil || errors.Is(undone, errUndestroyed) {
			undone = e.checkpoint(ctx)
		}
	}
	if (err == nil || errors.Is(err, errUnmoved)) && (undone == nil || errors.Is(undone, errUndestroyed)) {
		undone = errors.Join(undone, e.compactIndex(ctx))
	}
	out.After = e.measure()
	return out, errors.Join(err, undone)
}

// compactIndex rewrites index.db without its free pages.
func (e *engine) compactIndex(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	return e.ix.Compact()
}

// worth picks the segments that Compact rewrites: those that are mostly dead, and small ones unless there is only one.
func (o CompactOptions) worth(e *engine) func(s segments.Info, live int64) bool {
	small := 0
	for _, s := range e.set.Segments() {
		if !s.Active && s.Size < e.o.SegmentBytes/4 {
			small++
		}
	}
	return func(s segments.Info, live int64) bool {
		return float64(live) < o.LiveShare*float64(s.Size) || small > 1 && s.Size < e.o.SegmentBytes/4
	}
}
