package catalog

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/kv"
)

// MaxNotes bounds the notes of a model.
const MaxNotes = 256

// Note returns a note's value, which must not be changed.
func (c *Catalog) Note(fp kv.Fingerprint, name string) ([]byte, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	value, ok := c.notes[fp][name]
	return value, ok
}

// NoteNames lists the names of a model's notes, sorted.
func (c *Catalog) NoteNames(fp kv.Fingerprint) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Sorted(maps.Keys(c.notes[fp]))
}

// Notes lists all notes in the order of models and names.
func (c *Catalog) Notes() []oplog.Note {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.allNotes()
}

// NoteFits refuses a note of a model that is gone, and one too many.
func (c *Catalog) NoteFits(n oplog.Note) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.models[n.Model] == nil {
		return fmt.Errorf("%w: %s", ErrRetired, n.Model)
	}
	of := c.notes[n.Model]
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
	return c.headFits(fmt.Sprintf("note %.40q", n.Name), n.Bytes(), goes)
}

// DropStrayNotes drops the notes of models that are not there: the part of the log that said so is damaged.
func (c *Catalog) DropStrayNotes() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for fp := range c.notes {
		if c.models[fp] == nil {
			c.dropNotes(fp)
		}
	}
}

func (c *Catalog) setNote(n oplog.Note) {
	of := c.notes[n.Model]
	if old, ok := of[n.Name]; ok {
		c.noteBytes -= oplog.Note{Name: n.Name, Value: old}.Bytes()
		delete(of, n.Name)
	}
	if len(n.Value) == 0 {
		return
	}
	if of == nil {
		of = map[string][]byte{}
		c.notes[n.Model] = of
	}
	of[n.Name] = n.Value
	c.noteBytes += n.Bytes()
}

func (c *Catalog) dropNotes(fp kv.Fingerprint) {
	for name := range c.notes[fp] {
		c.setNote(oplog.Note{Model: fp, Name: name})
	}
	delete(c.notes, fp)
}

func (c *Catalog) allNotes() (out []oplog.Note) {
	models := slices.SortedFunc(maps.Keys(c.notes), func(a, b kv.Fingerprint) int { return bytes.Compare(a[:], b[:]) })
	for _, fp := range models {
		for _, name := range slices.Sorted(maps.Keys(c.notes[fp])) {
			out = append(out, oplog.Note{Model: fp, Name: name, Value: c.notes[fp][name]})
		}
	}
	return out
}
