package catalog

import (
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/kv"
)

// Note returns a note's value, which must not be changed.
func (c *Catalog) Note(fp kv.Fingerprint, name string) ([]byte, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	value, ok := c.notes.of[fp][name]
	return value, ok
}

// NoteNames lists the names of a model's notes, sorted.
func (c *Catalog) NoteNames(fp kv.Fingerprint) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Sorted(maps.Keys(c.notes.of[fp]))
}

// Notes lists all notes in the order of models and names.
func (c *Catalog) Notes() []oplog.Note {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.notes.all()
}

// DropStrayNotes drops the notes of models that are not there: the part of the log that said so is damaged.
func (c *Catalog) DropStrayNotes() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for fp := range c.notes.of {
		if c.models.of[fp] == nil {
			c.notes.dropModel(fp)
		}
	}
}
