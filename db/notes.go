package db

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/oplog"
)

// Limits of notes: every log file repeats them. [MaxHeadBytes] bounds them together with models and refs.
const (
	MaxNotes     = catalog.MaxNotes   // of a model
	MaxNoteName  = oplog.MaxNoteName  // bytes
	MaxNoteBytes = oplog.MaxNoteBytes // of a value
)

// SetNote keeps a small value with this version of the model, in the place of an older one of that name; an empty value removes
// it. Notes are for a runtime that wants to know a model again: what it computed with it, or by which settings. They stay as long as
// the model does: nothing evicts them, Delete and DeleteScope leave them, and Retire takes them. So they must not hold what is a user's.
//
// ErrNoSpace if the budget has no room for it, and nothing can be evicted for it.
func (m *Model) SetNote(ctx context.Context, name string, value []byte) error {
	return m.s.onIndex(ctx, func() error { return m.setNoteOnce(ctx, name, value) })
}

func (m *Model) setNoteOnce(ctx context.Context, name string, value []byte) error {
	switch {
	case name == "" || len(name) > MaxNoteName:
		return fmt.Errorf("%w: note name of %d bytes: 1 to %d", ErrLimit, len(name), MaxNoteName)
	case len(value) > MaxNoteBytes:
		return fmt.Errorf("%w: note %q of %d bytes, at most %d", ErrLimit, name, len(value), MaxNoteBytes)
	}
	e, err := m.enter()
	if err != nil {
		return err
	}
	defer m.s.leave()
	if e.wal == nil {
		return ErrReadOnly
	}
	n := oplog.Note{Model: m.ms.Fingerprint, Name: name, Value: slices.Clone(value)}
	old, had := e.catalog.Note(n.Model, name)
	if had && bytes.Equal(old, value) || !had && len(value) == 0 {
		return e.durable(e.wal.LastLSN()) // another call's, perhaps
	}
	if err := e.boundState(ctx); err != nil {
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

func (e *engine) logNote(n oplog.Note) (uint64, error) {
	e.logMu.Lock()
	defer e.logMu.Unlock()
	if err := e.catalog.NoteFits(n); err != nil {
		return 0, err
	}
	return e.logStateLocked(n)
}

// Note returns a note's value, in memory of the caller's. ErrNotFound if there is none of that name.
func (m *Model) Note(name string) ([]byte, error) {
	e, err := m.enter()
	if err != nil {
		return nil, err
	}
	defer m.s.leave()
	value, ok := e.catalog.Note(m.ms.Fingerprint, name)
	if !ok {
		return nil, fmt.Errorf("%w: note %q on model %s", ErrNotFound, name, m.ms.Fingerprint)
	}
	return slices.Clone(value), nil
}

func (m *Model) notes() ([]string, error) {
	e, err := m.enter()
	if err != nil {
		return nil, err
	}
	defer m.s.leave()
	return e.catalog.NoteNames(m.ms.Fingerprint), nil
}
