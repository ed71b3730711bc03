package engine

import (
	"bytes"
	"context"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/oplog"
)

// SetNote keeps a value with a model, and returns when the mode's promise holds. An empty one removes it.
func (e *Engine) SetNote(ctx context.Context, n oplog.Note) error {
	if e.wal == nil {
		return folder.ErrReadOnly
	}
	old, had := e.Catalog.Note(n.Model, n.Name)
	if had && bytes.Equal(old, n.Value) || !had && len(n.Value) == 0 {
		return e.durable(e.wal.LastLSN()) // another call's, perhaps
	}
	if err := e.BoundState(ctx); err != nil {
		return err
	}
	room := 3 * n.Bytes()
	if err := e.reserveState(ctx, room); err != nil {
		return err
	}
	defer e.space.giveUp(room, 0)
	lsn, err := e.logNote(n)
	if err != nil {
		return err
	}
	return e.durable(lsn)
}

func (e *Engine) logNote(n oplog.Note) (uint64, error) {
	e.commitMu.Lock()
	defer e.commitMu.Unlock()
	if err := e.Catalog.NoteFits(n); err != nil {
		return 0, err
	}
	return e.logStateLocked(n)
}

// reserveState reserves room for a model or note, of which there will be one in the log, one in the head of the next log file and one in
// the index. Others make way. The caller gives it up when the log has it.
func (e *Engine) reserveState(ctx context.Context, room int64) error {
	e.measureOnce()
	if e.space.reserve(room, e.o.Budget-e.reserveBytes()) {
		return nil
	}
	return e.MakeRoom(ctx, room, 0)
}
