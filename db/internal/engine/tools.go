package engine

import (
	"slices"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// What the packages beside the store's own operations need: check, repair, admin.

// Leftovers are the segments that an earlier process did not seal, and that are not sealed yet.
func (e *Engine) Leftovers() []recovery.Leftover {
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	return slices.Clone(e.unsealed)
}

// BetweenCheckpoints calls do while no checkpoint runs and nothing is destroyed.
func (e *Engine) BetweenCheckpoints(do func()) {
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	do()
}

// HoldLog calls do while no file of the log is removed, and nothing appended.
func (e *Engine) HoldLog(do func()) {
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	e.commitMu.Lock()
	defer e.commitMu.Unlock()
	do()
}

// BloomFile reads the Bloom filter's file. It is current if the filter in use came from it or was written to it.
func (e *Engine) BloomFile() (b *index.Bloom, lsn uint64, current bool, err error) {
	e.bloomLoad.wait()
	e.ckptMu.Lock()
	defer e.ckptMu.Unlock()
	b, lsn, err = index.ReadBloom(e.FS, e.Path(folder.BloomName), e.Format.UUID)
	return b, lsn, e.bloomLSN == lsn && e.bloom.Load() != nil, err
}

// RaiseNumbers keeps sequence numbers and times up to these from being given again.
func (e *Engine) RaiseNumbers(seq, clock uint64) {
	e.seq.Store(max(e.seq.Load(), seq))
	e.clock.Store(max(e.clock.Load(), clock))
}

// Appending keeps checkpoints from beginning until done is called: records that are appended have to be committed before.
func (e *Engine) Appending() (done func()) {
	e.publishGate.RLock()
	return e.publishGate.RUnlock
}

// Grew notes bytes that were appended, and reports whether a checkpoint is due.
func (e *Engine) Grew(bytes int64) (due bool) { return e.growth.Add(bytes) >= e.o.CheckpointBytes }

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
		return e.FoundBad(key, group, l, err)
	}
	return nil
}
