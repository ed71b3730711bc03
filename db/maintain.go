package db

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/space"
)

// Checkpoint makes everything that was acknowledged so far durable, moves it from the log to the index, and deletes
// the log files that are no longer needed.
func (s *Store) Checkpoint(ctx context.Context) error {
	e, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer s.leave()
	return s.checkIndex(errors.Join(e.Space.Checkpoint(ctx), e.Journals.Sync()))
}

// Sync makes everything that was acknowledged so far durable, and destroys the bytes of what was deleted. Where refs went with that, it
// makes a checkpoint and writes the index anew, so that no file holds their names and metadata. It returns a [*PendingError] if open matches can still see
// some of those, or if a Verify is at work where they lie: call it again then.
func (s *Store) Sync(ctx context.Context) error {
	e, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer s.leave()
	left, err := e.Space.SyncAll(ctx)
	if err == nil && left.Records+left.Segments > 0 {
		err = (*PendingError)(&left)
	}
	return s.checkIndex(err)
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
	e, err := s.enter(ctx)
	if err != nil {
		return Compacted{}, err
	}
	defer s.leave()
	did, err := e.Space.Compact(ctx, space.CompactOptions{LiveShare: o.LiveShare, All: o.All, Progress: o.Progress, Least: s.o.Inside.CompactLeast})
	return Compacted(did), s.checkIndex(err)
}

// Pressure is how short of memory the system is, for [Store.Pressure]. docs/operations.md has what each level gave back in a measured
// store, and which events of Android and iOS call for which.
type Pressure uint8

const (
	// Moderate drops what comes back by itself: maps and pages of the store's files, file handles, buffers in pools. The garbage collector
	// runs. The functions of [Store.OnPressure] are not called.
	Moderate Pressure = iota + 1
	// Low also calls the functions of [Store.OnPressure], which give up memory that they can fill again. A runtime stores its idle
	// conversations and frees their rows.
	Low
	// Critical does what Low does. The functions are told the level, and may give up what they would rather keep.
	Critical
)

func (p Pressure) String() string {
	switch p {
	case Moderate:
		return "moderate"
	case Low:
		return "low"
	case Critical:
		return "critical"
	}
	return fmt.Sprintf("pressure(%d)", uint8(p))
}

// Relieved says what a Pressure did.
type Relieved struct {
	Called int // functions of [Store.OnPressure]
	// Held are the segments whose maps or files could not be dropped: somebody reads them just now, or they have writes that could not be
	// synced.
	Held int
}

// Pressure gives back memory when the system warns that memory is short: what the level names, and what the levels below it name. It makes
// a checkpoint, which frees the part of the index that is not written yet. Everything else goes on meanwhile.
//
// Pressure takes nothing from the disk, and no later restore gets shorter by it. To give back disk, call [Store.Shrink].
//
// Pressure does all that it can. An error of a function, of the disk, or of ctx keeps nothing else from being dropped, and the
// errors are joined. In a store that is suspended or closed it calls no function, since the functions need the store: call it before Suspend.
func (s *Store) Pressure(ctx context.Context, level Pressure) (out Relieved, err error) {
	if level < Moderate || level > Critical {
		return out, fmt.Errorf("db: Pressure of level %d: expected Moderate (%d), Low (%d) or Critical (%d)", level, Moderate, Low, Critical)
	}
	if _, err := s.enter(context.WithoutCancel(ctx)); err != nil { // suspended or closed
		return out, err
	}
	s.leave()
	if level >= Low {
		out.Called, err = s.press(ctx, level)
	}
	held, terr := s.trim(ctx)
	out.Held = held
	return out, errors.Join(err, terr)
}

// trim gives back memory, but for the maps and handles of held segments. A ctx that has ended keeps it from the checkpoint only.
func (s *Store) trim(ctx context.Context) (held int, err error) {
	e, err := s.enter(context.WithoutCancel(ctx))
	if err != nil {
		return 0, err
	}
	defer s.leave()
	held, err = e.Trim(ctx)
	return held, s.checkIndex(err)
}

// OnPressure has Pressure call f at Low and Critical, before the store drops anything. f gives up memory that it can fill again. It may use the
// store, but for Suspend, Resume and Close; what it puts counts against the budget, as any put. Functions are called one after the other, in the order in which they came; two
// Pressures at the same time call them at the same time. stop takes f out again; it does not wait for a call of f that has begun.
func (s *Store) OnPressure(f func(ctx context.Context, level Pressure) error) (stop func()) {
	mine := &f
	change := func(to func(all []*pressed) []*pressed) {
		for {
			was := s.pressed.Load()
			now := to(slices.Clone(*was))
			if s.pressed.CompareAndSwap(was, &now) {
				return
			}
		}
	}
	change(func(all []*pressed) []*pressed { return append(all, mine) })
	return func() {
		change(func(all []*pressed) []*pressed {
			return slices.DeleteFunc(all, func(f *pressed) bool { return f == mine })
		})
	}
}

// pressed is a function of OnPressure.
type pressed = func(context.Context, Pressure) error

// press calls the functions of OnPressure, until ctx is done.
func (s *Store) press(ctx context.Context, level Pressure) (called int, err error) {
	for _, f := range *s.pressed.Load() {
		if cerr := ctx.Err(); cerr != nil {
			return called, errors.Join(err, cerr)
		}
		called++
		err = errors.Join(err, (*f)(ctx, level))
	}
	return called, err
}

// Shrink answers storage pressure: it evicts, coldest first, until the store's files occupy bytes or less, and returns
// what they occupy then. Pinned and leased prefixes stay.
func (s *Store) Shrink(ctx context.Context, bytes int64) (int64, error) {
	left, _, err := s.shrink(ctx, bytes)
	return left, err
}

// shrink is Shrink, and says how many blocks were evicted.
func (s *Store) shrink(ctx context.Context, bytes int64) (left int64, evicted int, err error) {
	e, err := s.enter(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer s.leave()
	left, evicted, err = e.Space.Shrink(ctx, bytes)
	return left, evicted, s.checkIndex(err)
}
