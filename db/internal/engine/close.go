package engine

import (
	"context"
	"errors"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/segments"
)

// End leaves the files as finish does, which syncs all of them, and lets go of them. An index.db that is found damaged on the way is removed: the
// next open rebuilds it from segments and log, which have everything, and must be durable for that. The caller holds the lock.
func (e *Engine) End(ctx context.Context) error {
	err := e.Space.Finish(ctx)
	if !IsIndexDamage(err) {
		return errors.Join(err, e.Abandon())
	}
	e.log.Error("index is damaged; the next open rebuilds it", "dir", e.Dir, "error", err)
	saved := errors.Join(e.Space.Sync(), e.Abandon())
	if rerr := e.FS.Remove(e.Path(folder.IndexName)); rerr != nil {
		e.log.Error("damaged index could not be removed", "dir", e.Dir, "error", rerr)
		return errors.Join(err, saved)
	}
	return saved
}

// Halt stops the background work and waits for it.
func (e *Engine) Halt() {
	e.again.Drop()
	close(e.worker.stop)
	<-e.worker.done
	e.Filter.Wait()
}

// Abandon closes whatever is open, also of an Open that failed, though matches can see it.
func (e *Engine) Abandon() (err error) {
	if e.Filter != nil {
		e.Filter.Drop()
	}
	e.again.Drop()
	e.ring.Free()
	if e.Journals != nil {
		err = e.Journals.LetGo()
	}
	if e.Ledger != nil && e.Ledger.WAL != nil {
		err = errors.Join(err, e.Ledger.WAL.Close())
	}
	if e.Index != nil {
		err = errors.Join(err, e.Index.Close())
	}
	if e.Segments != nil {
		err = errors.Join(err, e.Segments.Abandon())
	}
	return errors.Join(err, e.unlock())
}

// Trim gives back memory: maps, handles, pools, pages read ahead, and by a checkpoint the part of the index that is not in index.db yet. It
// returns how many segments keep their maps or files, because somebody reads or writes them.
//
// Trim evicts nothing. A checkpoint evicts where killed processes have left files of the log in a full store: there the worker makes it.
func (e *Engine) Trim(ctx context.Context) (held int, err error) {
	e.again.Drop()
	if !e.Ledger.ReadOnly() {
		if err = e.Ledger.Poisoned(); err == nil && e.Space.Crowded() <= 1 {
			err = e.Space.Checkpoint(ctx)
		}
	}
	held = e.Segments.Trim()
	e.Index.Trim()
	e.ring.Free()
	segments.GiveBack(0)
	return held, err
}

func (e *Engine) unlock() error {
	if e.lock == nil {
		return nil
	}
	return e.lock.Release()
}
