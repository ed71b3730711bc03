package db

import (
	"context"
	"fmt"
	"iter"
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
	switch {
	case name == "" || len(name) > MaxNoteName:
		return fmt.Errorf("%w: note name of %d bytes: 1 to %d", ErrLimit, len(name), MaxNoteName)
	case len(value) > MaxNoteBytes:
		return fmt.Errorf("%w: note %q of %d bytes, at most %d", ErrLimit, name, len(value), MaxNoteBytes)
	}
	n := oplog.Note{Model: m.ms.Fingerprint, Name: name, Value: slices.Clone(value)}
	e, err := m.enter(ctx)
	if err != nil {
		return err
	}
	defer m.leave()
	return m.s.checkIndex(e.SetNote(ctx, n))
}

// Note returns a note's value, in memory of the caller's. ErrNotFound if there is none of that name.
func (m *Model) Note(name string) ([]byte, error) {
	e, err := m.enter(context.Background())
	if err != nil {
		return nil, err
	}
	defer m.leave()
	value, ok := e.Catalog.Note(m.ms.Fingerprint, name)
	if !ok {
		return nil, fmt.Errorf("%w: note %q on model %s", ErrNotFound, name, m.ms.Fingerprint)
	}
	return slices.Clone(value), nil
}

// Notes lists the names of the model's notes, sorted.
func (m *Model) Notes() iter.Seq2[string, error] { return listed(m.notes) }

func (m *Model) notes() ([]string, error) {
	e, err := m.enter(context.Background())
	if err != nil {
		return nil, err
	}
	defer m.leave()
	return e.Catalog.NoteNames(m.ms.Fingerprint), nil
}
