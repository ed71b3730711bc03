package engine

import (
	"context"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// What the packages beside the store's own operations need: check, repair, admin.

// Leftovers are the segments that an earlier process did not seal, and that are not sealed yet.
func (e *Engine) Leftovers() []recovery.Leftover {
	e.Checkpoints.Lock()
	defer e.Checkpoints.Unlock()
	return slices.Clone(e.unsealed)
}

// Disk is the file system that the store was opened on.
func (e *Engine) Disk() vfs.FS { return e.o.FS }

// BetweenCheckpoints calls do while no checkpoint runs and nothing is destroyed.
func (e *Engine) BetweenCheckpoints(do func()) {
	e.Checkpoints.Lock()
	defer e.Checkpoints.Unlock()
	do()
}

// HoldLog calls do while no file of the log is removed, and nothing appended.
func (e *Engine) HoldLog(do func()) {
	e.Checkpoints.Lock()
	defer e.Checkpoints.Unlock()
	e.Ledger.Lock()
	defer e.Ledger.Unlock()
	do()
}

// BloomFile reads the Bloom filter's file. It is current if the filter in use came from it or was written to it.
func (e *Engine) BloomFile() (b *index.Bloom, lsn uint64, current bool, err error) {
	e.bloomLoad.wait()
	e.Checkpoints.Lock()
	defer e.Checkpoints.Unlock()
	b, lsn, err = index.ReadBloom(e.FS, e.Path(folder.BloomName), e.Format.UUID)
	return b, lsn, e.bloomLSN == lsn && e.bloom.Load() != nil, err
}

// RaiseNumbers keeps sequence numbers and times up to these from being given again.
func (e *Engine) RaiseNumbers(seq, clock uint64) {
	e.Ledger.Seq.Store(max(e.Ledger.Seq.Load(), seq))
	e.Ledger.Ranks.Clock.Store(max(e.Ledger.Ranks.Clock.Load(), clock))
}

// Appending keeps checkpoints from beginning until done is called: records that are appended have to be committed before.
func (e *Engine) Appending() (done func()) {
	e.Ledger.Gate.RLock()
	return e.Ledger.Gate.RUnlock
}

// Grew notes bytes that were appended, and reports whether a checkpoint is due.
func (e *Engine) Grew(bytes int64) (due bool) { return e.Ledger.Growth.Add(bytes) >= e.o.CheckpointBytes }

// Record reads a record of the index, whose bytes stay readable meanwhile. segments.ErrDestroyed if it does not lie at l any more.
func (e *Engine) Record(key kv.Key, group uint8, l loc.Loc, read func(*segments.Record) error) error {
	lease := e.Segments.AcquireShort() // what is found stays readable
	defer lease.Release()
	v := e.View()
	x, ok, err := v.Get(key, group)
	v.Release()
	if err == nil && (!ok || x.Loc != l) {
		err = segments.ErrDestroyed
	}
	if err != nil {
		return err
	}
	if err := e.Segments.Read(l, read); err != nil {
		return e.Judge.FoundBad(key, group, l, err)
	}
	return nil
}

// Using lets do use the engine of an open *db.Store as one operation of it. Package db sets it: so the tools of package admin, and tests, reach
// what lies below a store that db has let them open.
var Using func(store any, do func(*Engine) error) error

// Hidden is what db.Open takes from its context and db.Options do not show.
type Hidden struct {
	KeepOut      bool  // a store that is opened read-only keeps writers out, so that its files stay as they are
	LogAhead     int64 // bounds what is reserved ahead in the log; 0: by the budget alone
	CompactLeast int64 // bytes that rewriting segments must give back in all, or Compact leaves them
}

type hiddenKey struct{}

// With is a context for db.Open.
func With(ctx context.Context, h Hidden) context.Context {
	return context.WithValue(ctx, hiddenKey{}, h)
}

// HiddenOf is what With put into a context.
func HiddenOf(ctx context.Context) Hidden {
	h, _ := ctx.Value(hiddenKey{}).(Hidden)
	return h
}
