package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
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
	if err := ctx.Err(); err != nil {
		return Compacted{}, err
	}
	if o.LiveShare == 0 {
		o.LiveShare = 0.5
	}
	out := Compacted{Before: e.measure()}
	if !e.asOpened() { // what waits to be destroyed or sealed is no segment's gain
		if err := e.checkpoint(ctx); err != nil && !errors.Is(err, ErrNotDestroyed) {
			return out, err
		}
	}
	victims := o.worth(e)
	if len(victims) == 0 && len(e.emptySegments()) == 0 && !e.indexWorth() {
		out.After = e.measure()
		return out, nil
	}
	if len(victims) > 0 {
		err = e.rewrite(ctx, func(s segments.Info, _ int64) bool { return victims[s.ID] }, o.Progress, &out)
	}
	// One checkpoint makes the moves durable and destroys the old places; the next finds the segments empty. What cannot be moved or
	// destroyed keeps nothing else from being done. It is said in the end, if it still stands.
	var undone error
	for range 2 {
		if undone == nil || errors.Is(undone, ErrNotDestroyed) {
			undone = e.checkpoint(ctx)
		}
	}
	if (err == nil || errors.Is(err, ErrNotMoved)) && (undone == nil || errors.Is(undone, ErrNotDestroyed)) {
		undone = errors.Join(undone, e.shrinkIndex(ctx))
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

// shrinkIndex is compactIndex, unless that gives nothing back.
func (e *engine) shrinkIndex(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	return e.ix.Shrink()
}

// indexWorth reports whether enough of index.db is free to write it anew.
func (e *engine) indexWorth() bool {
	return e.ix.FreeBytes() >= max(64<<10, e.indexBytes.Load()/8)
}

// worth picks the segments that Compact rewrites: those that are mostly dead, and small ones where a model has several. Those of a model
// are rewritten together, unless that takes more than it gives.
func (o CompactOptions) worth(e *engine) map[uint64]bool {
	type candidate struct {
		ids            []uint64
		records, bytes int64 // alive
		now, begin     int64 // allocated; where the first record lies
	}
	v := e.view()
	defer v.Release()
	small := map[kv.Fingerprint]int{}
	isSmall := func(s segments.Info) bool { return s.Size < e.o.SegmentBytes/4 }
	all := e.set.Segments()
	for _, s := range all {
		if !s.Active && isSmall(s) && v.Segment(s.ID).Records > 0 {
			small[s.Model]++
		}
	}
	models := map[kv.Fingerprint]*candidate{}
	for _, s := range all {
		live := v.Segment(s.ID)
		if s.Active || live.Records == 0 {
			continue
		}
		places := max(s.End, live.Bytes+s.Begin) - s.Begin // of records, dead or alive
		if s.End == 0 {                                    // it is not known where they end
			places = s.Size
		}
		mostlyDead := places > live.Bytes && float64(live.Bytes) < o.LiveShare*float64(places)
		if !o.All && !mostlyDead && (!isSmall(s) || small[s.Model] < 2) {
			continue
		}
		c := models[s.Model]
		if c == nil {
			c = &candidate{}
			models[s.Model] = c
		}
		c.ids = append(c.ids, s.ID)
		c.records += live.Records
		c.bytes += live.Bytes
		c.now += s.Allocated
		c.begin = max(c.begin, s.Begin)
	}
	victims := map[uint64]bool{}
	total := int64(0)
	for _, c := range models {
		files := c.bytes/e.o.SegmentBytes + 1
		then := c.bytes + files*(c.begin+segments.FooterBytes(c.records/files+1)+blockBytes)
		if !o.All && then > c.now+blockBytes {
			continue
		}
		total += c.now - then
		for _, id := range c.ids {
			victims[id] = true
		}
	}
	if !o.All && total < o.least {
		return nil
	}
	return victims
}

// blockBytes is what files occupy a multiple of, on most file systems.
const blockBytes = 4096
