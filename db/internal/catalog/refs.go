package catalog

import (
	"maps"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/kv"
)

// ClassPinned is the class of blocks under a pinned ref: eviction stops before them.
const ClassPinned = 255

// Ref returns the ref of that name.
func (c *Catalog) Ref(name string) (oplog.Ref, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	r := c.refs.of[name]
	if r == nil {
		return oplog.Ref{}, false
	}
	return r.Ref, true
}

// Refs lists all refs by name.
func (c *Catalog) Refs() []oplog.Ref {
	c.mu.RLock()
	refs := maps.Clone(c.refs.of)
	c.mu.RUnlock()
	out := make([]oplog.Ref, 0, len(refs))
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		out = append(out, refs[name].Ref)
	}
	return out
}

// RefsWhere returns the names of the refs for which pick says yes, sorted. It looks at all refs. pick must not use the catalog, nor change a ref.
func (c *Catalog) RefsWhere(pick func(*oplog.Ref) (bool, error)) (names []string, err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	c.refs.walks.Add(1)
	for name, r := range c.refs.of {
		yes, err := pick(&r.Ref)
		if err != nil {
			return nil, err
		}
		if yes {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// RefWalks is how often [Catalog.RefsWhere] looked at all refs: for tests.
func (c *Catalog) RefWalks() uint64 { return c.refs.walks.Load() }

// Expired returns the names of the refs whose time is over.
func (c *Catalog) Expired(now time.Time) []string {
	names, _ := c.RefsWhere(func(r *oplog.Ref) (bool, error) { return r.Expired(now), nil })
	return names
}

// IsNamed reports whether a ref is on block k.
func (c *Catalog) IsNamed(k kv.Key) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.refs.blocks[k]) > 0
}

// RefsOn returns the names of the refs on block k, in no order.
func (c *Catalog) RefsOn(k kv.Key) (names []string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, r := range c.refs.blocks[k] {
		names = append(names, r.Name)
	}
	return names
}

// Named lists the blocks that refs are on.
func (c *Catalog) Named() []kv.Key {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Keys(c.refs.blocks))
}

// Pinned is how many blocks have a pinned ref.
func (c *Catalog) Pinned() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.refs.pins)
}

// PinChanges grows with each pinned ref that is set or goes.
func (c *Catalog) PinChanges() uint64 { return c.refs.pinChanges.Load() }

// PinnedBlocks lists the blocks that have a pinned ref.
func (c *Catalog) PinnedBlocks() []kv.Key {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Keys(c.refs.pins))
}

// Class is the priority of block k, which its refs say.
func (c *Catalog) Class(k kv.Key) uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.refs.pins[k] > 0 {
		return ClassPinned
	}
	if counts := c.refs.classes[k]; len(counts) > 0 {
		return uint64(counts[len(counts)-1].priority)
	}
	return 0
}

// FormerDeleted reports whether log and index may hold what refs said that are gone, and something was deleted since. What it returns
// beside that is for [Catalog.ForgetFormer].
func (c *Catalog) FormerDeleted() (is bool, asOf uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.refs.former == oplog.FormerDeleted, c.refs.formers
}

// ForgetFormer notes that no file holds any more what refs said that are gone, unless others went since. It reports whether it did.
func (c *Catalog) ForgetFormer(asOf uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refs.formers != asOf {
		return false
	}
	c.refs.former = oplog.FormerNone
	return true
}

// RankBits is the width of the order in which blocks of one class are evicted; the byte of a rank above it holds the class.
const RankBits = 56

// RankMask takes the class out of a rank.
const RankMask = 1<<RankBits - 1

// Rank is the rank of block k: its class, and in that its order.
func (c *Catalog) Rank(k kv.Key, order uint64) uint64 { return c.Class(k)<<RankBits | order&RankMask }
