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
	r, ok := c.refs[name]
	return r, ok
}

// Refs lists all refs by name.
func (c *Catalog) Refs() []oplog.Ref {
	c.mu.RLock()
	refs := maps.Clone(c.refs)
	c.mu.RUnlock()
	out := make([]oplog.Ref, 0, len(refs))
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		out = append(out, refs[name])
	}
	return out
}

// RefsWhere returns the names of the refs for which pick says yes, sorted. pick must not use the catalog.
func (c *Catalog) RefsWhere(pick func(*oplog.Ref) (bool, error)) (names []string, err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for name, r := range c.refs {
		yes, err := pick(&r)
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

// Expired returns the names of the refs whose time is over.
func (c *Catalog) Expired(now time.Time) []string {
	names, _ := c.RefsWhere(func(r *oplog.Ref) (bool, error) { return r.Expired(now), nil })
	return names
}

// IsNamed reports whether a ref is on block k.
func (c *Catalog) IsNamed(k kv.Key) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.blocks[k] > 0
}

// Named lists the blocks that refs are on.
func (c *Catalog) Named() []kv.Key {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Keys(c.blocks))
}

// Pinned is how many blocks have a pinned ref.
func (c *Catalog) Pinned() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.pins)
}

// PinChanges grows with each pinned ref that is set or goes.
func (c *Catalog) PinChanges() uint64 { return c.pinChanges.Load() }

// PinnedBlocks lists the blocks that have a pinned ref.
func (c *Catalog) PinnedBlocks() []kv.Key {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Keys(c.pins))
}

// Class is the priority of block k, which its refs say.
func (c *Catalog) Class(k kv.Key) uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.pins[k] > 0 {
		return ClassPinned
	}
	return uint64(c.classes[k])
}

// FormerDeleted reports whether log and index may hold what refs said that are gone, and something was deleted since. What it returns
// beside that is for [Catalog.ForgetFormer].
func (c *Catalog) FormerDeleted() (is bool, asOf uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.former == oplog.FormerDeleted, c.formers
}

// ForgetFormer notes that no file holds any more what refs said that are gone, unless others went since. It reports whether it did.
func (c *Catalog) ForgetFormer(asOf uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.formers != asOf {
		return false
	}
	c.former = oplog.FormerNone
	return true
}

func (c *Catalog) setRef(r oplog.Ref) {
	if old, ok := c.refs[r.Name]; ok {
		delete(c.refs, r.Name) // count looks at those that stay
		c.count(old, -1)
		c.former = max(c.former, oplog.FormerSet)
		c.formers++
	}
	c.refs[r.Name] = r
	c.count(r, 1)
}

func (c *Catalog) dropRef(name string) {
	if r, ok := c.refs[name]; ok {
		delete(c.refs, name)
		c.count(r, -1)
		c.former = oplog.FormerDeleted
		c.formers++
	}
}

func (c *Catalog) count(r oplog.Ref, delta int) {
	c.refBytes += int64(delta) * r.Bytes()
	add := func(m map[kv.Key]int) {
		if m[r.Block] += delta; m[r.Block] == 0 {
			delete(m, r.Block)
		}
	}
	add(c.blocks)
	if r.Pinned {
		add(c.pins)
		c.pinChanges.Add(1)
	}
	if r.Priority == 0 {
		return
	}
	if delta > 0 {
		c.classes[r.Block] = max(c.classes[r.Block], r.Priority)
		return
	}
	delete(c.classes, r.Block)
	for _, other := range c.refs {
		if other.Block == r.Block && other.Priority > 0 {
			c.classes[r.Block] = max(c.classes[r.Block], other.Priority)
		}
	}
}

// RankBits is the width of the order in which blocks of one class are evicted; the byte of a rank above it holds the class.
const RankBits = 56

// RankMask takes the class out of a rank.
const RankMask = 1<<RankBits - 1

// Rank is the rank of block k: its class, and in that its order.
func (c *Catalog) Rank(k kv.Key, order uint64) uint64 { return c.Class(k)<<RankBits | order&RankMask }
