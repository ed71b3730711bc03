package catalog

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/oplog"
)

// What outlives blocks, models, refs and notes, is repeated at the head of every log file, which is one frame. It is bounded where it
// is registered, so that the head always fits: the rest of the frame is for the records that wait to be destroyed.

const (
	// MaxModels bounds how many models a store has.
	MaxModels = 1 << 12
	// MaxHeadBytes bounds what all models, refs and notes of a store take together: descriptors, names, metadata and values.
	MaxHeadBytes = 32 << 20
)

// Head returns what encodes the catalog as it is now, with ends and the next numbers, as the head of a log file. Changes until it is called
// do not touch it, and it takes no lock.
func (c *Catalog) Head(ends map[uint64]int64, next oplog.Counters) (encode func() []byte) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	head := oplog.Snapshot{Ends: ends, Next: next, FormerRefs: c.former}
	for _, name := range slices.Sorted(maps.Keys(c.refs)) {
		head.Refs = append(head.Refs, c.refs[name].Ref)
	}
	head.Tombstones = slices.Collect(maps.Keys(c.tombstones))
	head.Unlinked = slices.Collect(maps.Keys(c.unlinked))
	head.Flagged = slices.Collect(maps.Keys(c.flagged))
	head.Notes = c.allNotes()
	models := make([]*oplog.Model, 0, len(c.models)) // which are never changed
	for _, m := range c.models {
		models = append(models, m.Model)
	}
	return func() []byte {
		head := head
		head.Models = make([]oplog.Model, 0, len(models))
		for _, m := range models {
			head.Models = append(head.Models, *m)
		}
		return oplog.Encode(head)
	}
}

// HeadBound is at least what Head takes now, with so many ends.
func (c *Catalog) HeadBound(ends int) int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return 4096 + c.headBytes() + 64*int64(len(c.tombstones)+len(c.unlinked)+len(c.flagged)+ends)
}

// HeadBytes is what models, refs and notes take in the head of the log, generously.
func (c *Catalog) HeadBytes() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.headBytes()
}

func (c *Catalog) headBytes() int64 { return c.modelBytes + c.refBytes + c.noteBytes }

// headFits refuses to let what comes take so many more bytes of the head than what goes.
func (c *Catalog) headFits(what string, comes, goes int64) error {
	if total := c.headBytes() + comes - goes; comes > goes && total > MaxHeadBytes {
		return fmt.Errorf("%w: models, refs and notes take %d bytes with %s of %d, at most %d: %d models take %d, %d refs %d, and notes %d",
			ErrLimit, total, what, comes, MaxHeadBytes, len(c.models), c.modelBytes, len(c.refs), c.refBytes, c.noteBytes)
	}
	return nil
}

// RefFits refuses a ref that would make the head of the log too large.
func (c *Catalog) RefFits(r oplog.Ref) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var goes int64
	if old, ok := c.refs[r.Name]; ok {
		goes = old.Bytes()
	}
	return c.headFits(fmt.Sprintf("ref %.40q", r.Name), r.Bytes(), goes)
}

// ModelFits refuses a model that would make the head of the log too large, and one too many.
func (c *Catalog) ModelFits(op oplog.Model) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var goes int64
	old := c.models[op.Fingerprint]
	if old != nil { // it becomes the latest version of its name again
		goes = old.Bytes()
	}
	if n := len(c.models); old == nil && n >= MaxModels {
		return fmt.Errorf("%w: it has %d models, and can have no more than %d: Retire makes room for %.40q", ErrLimit, n, MaxModels, op.Name)
	}
	return c.headFits(fmt.Sprintf("model %.40q", op.Name), op.Bytes(), goes)
}
