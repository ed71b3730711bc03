package catalog

import (
	"errors"
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/oplog"
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

// Place is where a replay has read something, or the number of the frame that this process has logged for it.
type Place struct {
	File   string
	Offset int64
	LSN    uint64 // 0: it was read
}

// Catalog is the small state. Safe for concurrent use.
type Catalog struct {
	mu lock.RWMutex[lock.Catalog] // guards all below

	models     map[kv.Fingerprint]*Model
	modelBytes int64 // of all models, as oplog.Model.Bytes counts

	refs     map[string]*ref
	refBytes int64
	// blocks has the refs on each block. pins counts the pinned ones; classes counts those of each priority but 0, the highest last: so many
	// on one block cost each of them nothing.
	blocks  map[kv.Key][]*ref
	pins    map[kv.Key]int
	classes map[kv.Key][]classCount
	// pinChanges counts pinned refs that were set or went; it is read without the lock.
	pinChanges atomic.Uint64
	refWalks   atomic.Uint64 // as well
	former     oplog.FormerRefs
	formers    uint64 // counts the refs that went, or were set anew, since this catalog was made

	notes     map[kv.Fingerprint]map[string][]byte
	noteBytes int64

	// tombstones are records that no index entry names and whose bytes are not yet known to be destroyed. fresh are those of them that were
	// not yet taken to be destroyed; if behind, some of these, or of the segments to be unlinked, wait for a barrier.
	tombstones map[loc.Loc]struct{}
	fresh      []loc.Loc
	unseen     []loc.Loc // as fresh; no open match can have found them
	behind     bool
	unlinked   map[uint64]bool // segments whose files are to go; true: each record in it is a tombstone of its own

	flagged  map[kv.Key]struct{} // some may be whole again since, or gone
	anyFlags atomic.Bool         // changed with flagged; read without the lock
}

// New is an empty catalog.
func New() *Catalog {
	c := &Catalog{}
	c.reset()
	return c
}

// reset empties the catalog.
func (c *Catalog) reset() {
	c.models, c.modelBytes = map[kv.Fingerprint]*Model{}, 0
	c.refs, c.refBytes = map[string]*ref{}, 0
	c.blocks, c.pins, c.classes = map[kv.Key][]*ref{}, map[kv.Key]int{}, map[kv.Key][]classCount{}
	c.former, c.formers = oplog.FormerNone, 0
	c.notes, c.noteBytes = map[kv.Fingerprint]map[string][]byte{}, 0
	c.tombstones, c.fresh, c.unseen, c.behind = map[loc.Loc]struct{}{}, nil, nil, false
	c.unlinked = map[uint64]bool{}
	c.flagged = map[kv.Key]struct{}{}
	c.anyFlags.Store(false)
}

// Of returns the catalog that a log head describes, which was read at that place. Its tombstones wait to be destroyed.
func Of(head *oplog.Snapshot, at Place) *Catalog {
	c := New()
	c.Apply(*head, at)
	return c
}

// Apply changes the catalog as an operation says that is logged.
func (c *Catalog) Apply(op oplog.Op, at Place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	op.Change(change{c, at})
}

// Hold keeps everybody else from the catalog until release, which applies op unless it is nil: so nobody sees the index after an
// operation beside the catalog before it.
func (c *Catalog) Hold() (release func(op oplog.Op, at Place)) {
	c.mu.Lock()
	return func(op oplog.Op, at Place) {
		defer c.mu.Unlock()
		if op != nil {
			op.Change(change{c, at})
		}
	}
}

// IsFlagged reports whether a record of block k was once found damaged: then the index says whether it still is.
func (c *Catalog) IsFlagged(k kv.Key) bool {
	if !c.anyFlags.Load() {
		return false
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, ok := c.flagged[k]
	return ok
}

// DropFlags drops the flagged blocks for which whole says yes.
func (c *Catalog) DropFlags(whole func(kv.Key) bool) {
	if !c.anyFlags.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.flagged {
		if whole(k) {
			delete(c.flagged, k)
		}
	}
	c.anyFlags.Store(len(c.flagged) > 0)
}
