package catalog

import (
	"errors"

	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/kv"
)

var (
	// ErrRetired is returned for a model that is not in the store any more.
	ErrRetired = errors.New("model was retired")
	// ErrLimit is returned where there are too many of something, or too much.
	ErrLimit = errors.New("over a limit of the store")
)

// Catalog is the small state. Safe for concurrent use.
type Catalog struct {
	mu lock.RWMutex[lock.Catalog] // guards all below

	models  modelSet
	refs    refSet
	notes   noteSet
	pending pending
	flags   flagSet
}

// New is an empty catalog.
func New() *Catalog {
	c := &Catalog{}
	c.reset()
	return c
}

// reset empties the catalog.
func (c *Catalog) reset() {
	c.models = modelSet{of: map[kv.Fingerprint]*Model{}}
	c.refs.reset()
	c.notes = noteSet{of: map[kv.Fingerprint]map[string][]byte{}}
	c.pending = pending{tombstones: map[loc.Loc]struct{}{}, unlinked: map[uint64]bool{}}
	c.flags.of = map[kv.Key]struct{}{}
	c.flags.any.Store(false)
}

// IsFlagged reports whether a record of block k was once found damaged: then the index says whether it still is.
func (c *Catalog) IsFlagged(k kv.Key) bool {
	if !c.flags.any.Load() {
		return false
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, ok := c.flags.of[k]
	return ok
}

// DropFlags drops the flagged blocks for which whole says yes.
func (c *Catalog) DropFlags(whole func(kv.Key) bool) {
	if !c.flags.any.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.flags.of {
		if whole(k) {
			delete(c.flags.of, k)
		}
	}
	c.flags.any.Store(len(c.flags.of) > 0)
}
