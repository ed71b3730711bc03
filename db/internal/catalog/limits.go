package catalog

import (
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/oplog"
)

// What outlives blocks, models, refs and notes, is repeated at the head of every log file, which is one frame. It is bounded where it
// is registered, so that the head always fits: the rest of the frame is for the records that wait to be destroyed.

const (
	// MaxModels bounds how many models a store has.
	MaxModels = 1 << 12
	// MaxNotes bounds the notes of a model.
	MaxNotes = 256
	// MaxHeadBytes bounds what all models, refs and notes of a store take together: descriptors, names, metadata and values.
	MaxHeadBytes = 32 << 20
)

// HeadBound is at least what Head takes now, with so many ends.
func (c *Catalog) HeadBound(ends int) int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return 4096 + c.headBytes() + 64*int64(len(c.pending.tombstones)+len(c.pending.unlinked)+len(c.flags.of)+ends)
}

// HeadBytes is what models, refs and notes take in the head of the log, generously.
func (c *Catalog) HeadBytes() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.headBytes()
}

func (c *Catalog) headBytes() int64 { return c.models.bytes + c.refs.bytes + c.notes.bytes }

// headFits refuses to let what comes take so many more bytes of the head than what goes.
func (c *Catalog) headFits(what string, comes, goes int64) error {
	if total := c.headBytes() + comes - goes; comes > goes && total > MaxHeadBytes {
		return fmt.Errorf("%w: models, refs and notes take %d bytes with %s of %d, at most %d: %d models take %d, %d refs %d, and notes %d",
			ErrLimit, total, what, comes, MaxHeadBytes, len(c.models.of), c.models.bytes, len(c.refs.of), c.refs.bytes, c.notes.bytes)
	}
	return nil
}

// RefFits refuses a ref that would make the head of the log too large.
func (c *Catalog) RefFits(r oplog.Ref) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var goes int64
	if old, ok := c.refs.of[r.Name]; ok {
		goes = old.Bytes()
	}
	return c.headFits(fmt.Sprintf("ref %.40q", r.Name), r.Bytes(), goes)
}

// ModelFits refuses a model that would make the head of the log too large, and one too many.
func (c *Catalog) ModelFits(op oplog.Model) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var goes int64
	old := c.models.of[op.Fingerprint]
	if old != nil { // it becomes the latest version of its name again
		goes = old.Bytes()
	}
	if n := len(c.models.of); old == nil && n >= MaxModels {
		return fmt.Errorf("%w: it has %d models, and can have no more than %d: Retire makes room for %.40q", ErrLimit, n, MaxModels, op.Name)
	}
	return c.headFits(fmt.Sprintf("model %.40q", op.Name), op.Bytes(), goes)
}

// NoteFits refuses a note of a model that is gone, and one too many.
func (c *Catalog) NoteFits(n oplog.Note) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.models.of[n.Model] == nil {
		return fmt.Errorf("%w: %s", ErrRetired, n.Model)
	}
	of := c.notes.of[n.Model]
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
