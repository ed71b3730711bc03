package space

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/checkpoint"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// SyncAll makes all that was acknowledged durable, and destroys the bytes of what was deleted, refs included. What open matches can still see
// is left, and what lies where a Verify is at work.
func (sp *Space) SyncAll(ctx context.Context) (left checkpoint.Left, err error) {
	if err := sp.Ledger.Poisoned(); err != nil {
		return left, err
	}
	sp.Checkpoints.Lock()
	err = sp.Checkpoints.SealLeftovers(ctx) // behind their ends there may be what a power cut tore, of what was deleted since
	sp.Checkpoints.Unlock()
	if err != nil {
		return left, err
	}
	if err := sp.Sync(); err != nil {
		return left, err
	}
	if left, err = sp.Checkpoints.ReclaimAll(ctx); err != nil {
		return left, err
	}
	return left, sp.scrubRefs(ctx)
}

// scrubRefs sees to it that no file holds what refs said that are gone, if something was deleted since: a log that begins with those that
// there are, and an index without free pages.
func (sp *Space) scrubRefs(ctx context.Context) error {
	sp.Checkpoints.Lock()
	defer sp.Checkpoints.Unlock()
	due, formers := sp.Ledger.Catalog.FormerDeleted()
	if !due {
		return nil
	}
	goesOn, id := sp.Ledger.WAL.Begun(), sp.Ledger.WAL.FileID()
	if err := sp.checkpoint(ctx); err != nil && !errors.Is(err, checkpoint.ErrNotDestroyed) {
		return err
	}
	if goesOn && sp.Ledger.WAL.FileID() == id {
		return fmt.Errorf("%w: what deleted refs said stays in the log until there is room for another file", vfs.ErrNoSpace)
	}
	if err := sp.Ledger.Index.Compact(); err != nil {
		return err
	}
	if sp.Ledger.Catalog.ForgetFormer(formers) {
		sp.Ledger.Dirty.Store(true) // the head of the log says otherwise
	}
	return nil
}

// Sync makes durable what the segments and the log have, also what an earlier process left in them.
func (sp *Space) Sync() error {
	if sp.Ledger.WAL == nil {
		return nil
	}
	if err := sp.Ledger.Poisoned(); err != nil {
		return err
	}
	if err := sp.Ledger.Segments.Sync(); err != nil { // what no frame is about, too: headers, cuts
		return err
	}
	return errors.Join(sp.Journals.Sync(), sp.Ledger.AllDurable())
}

// Finish leaves the files as the next Open likes them: segments that end with their last record, of which those with room are gone on with, and a
// log of one head. A store in which nothing was written or used since it was opened is like that. Nobody else uses the store.
func (sp *Space) Finish(ctx context.Context) error {
	if sp.Ledger.WAL == nil {
		return nil
	}
	if sp.Checkpoints.AsOpened() && sp.Ledger.Poisoned() == nil {
		return nil
	}
	if err := sp.Ledger.Segments.Rest(); err != nil {
		return err
	}
	// What is dead goes before the checkpoint, since the log's new head names all of it that is still there: the next process would destroy it once more.
	// What could not be done the checkpoint tries again, and says.
	_ = sp.Checkpoints.Reclaim(ctx)
	return sp.Checkpoint(ctx)
}
