package engine

import (
	"bytes"
	"context"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/oplog"
)

// SetNote keeps a value with a model, and returns when the mode's promise holds. An empty one removes it.
func (e *Engine) SetNote(ctx context.Context, n oplog.Note) error {
	if e.Ledger.WAL == nil {
		return folder.ErrReadOnly
	}
	old, had := e.Catalog.Note(n.Model, n.Name)
	if had && bytes.Equal(old, n.Value) || !had && len(n.Value) == 0 {
		return e.Ledger.Durable(e.Ledger.WAL.LastLSN()) // another call's, perhaps
	}
	if err := e.Space.BoundState(ctx); err != nil {
		return err
	}
	room := 3 * n.Bytes()
	if err := e.Space.ReserveState(ctx, room); err != nil {
		return err
	}
	defer e.Budget.GiveUp(room, 0)
	lsn, err := e.logNote(n)
	if err != nil {
		return err
	}
	return e.Ledger.Durable(lsn)
}

func (e *Engine) logNote(n oplog.Note) (uint64, error) {
	c, err := e.Ledger.Begin()
	if err != nil {
		return 0, err
	}
	defer c.End()
	if err := e.Catalog.NoteFits(n); err != nil {
		return 0, err
	}
	lsn, err := c.LogState(n)
	if err != nil {
		return 0, err
	}
	return lsn, c.Publish()
}
