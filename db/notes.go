package db

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/kv"
)

// Limits of notes: every log file repeats them. [MaxHeadBytes] bounds them together with models and refs.
const (
	MaxNotes     = 256                // of a model
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
	old, had := e.note(n.Model, name)
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
	e.stateMu.RLock()
	err := e.state.noteFits(n)
	e.stateMu.RUnlock()
	if err != nil {
		return 0, err
	}
	return e.logStateLocked(n, func(st *smallState) { st.setNote(n) })
}

// Note returns a note's value, in memory of the caller's. ErrNotFound if there is none of that name.
func (m *Model) Note(name string) ([]byte, error) {
	e, err := m.enter()
	if err != nil {
		return nil, err
	}
	defer m.s.leave()
	value, ok := e.note(m.ms.Fingerprint, name)
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
	e.stateMu.RLock()
	defer e.stateMu.RUnlock()
	return slices.Sorted(maps.Keys(e.state.notes[m.ms.Fingerprint])), nil
}

func (e *engine) note(fp kv.Fingerprint, name string) ([]byte, bool) {
	e.stateMu.RLock()
	defer e.stateMu.RUnlock()
	value, ok := e.state.notes[fp][name]
	return value, ok
}

// noteFits refuses a note of a model that is gone, and one too many.
func (s *smallState) noteFits(n oplog.Note) error {
	if s.models[n.Model] == nil {
		return fmt.Errorf("%w: %s", ErrRetired, n.Model)
	}
	of := s.notes[n.Model]
	var goes int64
	old, had := of[n.Name]
	if had {
		goes = oplog.Note{Name: n.Name, Value: old}.Bytes()
	}
	switch {
	case len(n.Value) == 0:
		return nil
	case !had && len(of) >= MaxNotes:
		return fmt.Errorf("%w: model %s has %d notes, and can have no more", ErrLimit, n.Model, len(of))
	}
	return s.headFits(fmt.Sprintf("note %.40q", n.Name), n.Bytes(), goes)
}

func (s *smallState) setNote(n oplog.Note) {
	of := s.notes[n.Model]
	if old, ok := of[n.Name]; ok {
		s.noteBytes -= oplog.Note{Name: n.Name, Value: old}.Bytes()
		delete(of, n.Name)
	}
	if len(n.Value) == 0 {
		return
	}
	if of == nil {
		of = map[string][]byte{}
		s.notes[n.Model] = of
	}
	of[n.Name] = n.Value
	s.noteBytes += n.Bytes()
}

func (s *smallState) dropNotes(fp kv.Fingerprint) {
	for name := range s.notes[fp] {
		s.setNote(oplog.Note{Model: fp, Name: name})
	}
	delete(s.notes, fp)
}

// allNotes lists them in the order of models and names.
func (s *smallState) allNotes() (out []oplog.Note) {
	models := slices.SortedFunc(maps.Keys(s.notes), func(a, b kv.Fingerprint) int { return bytes.Compare(a[:], b[:]) })
	for _, fp := range models {
		for _, name := range slices.Sorted(maps.Keys(s.notes[fp])) {
			out = append(out, oplog.Note{Model: fp, Name: name, Value: s.notes[fp][name]})
		}
	}
	return out
}
