package catalog

import (
	"cmp"
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
	r := c.refs[name]
	if r == nil {
		return oplog.Ref{}, false
	}
	return r.Ref, true
}

// Refs lists all refs by name.
func (c *Catalog) Refs() []oplog.Ref {
	c.mu.RLock()
	refs := maps.Clone(c.refs)
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
	c.refWalks.Add(1)
	for name, r := range c.refs {
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
func (c *Catalog) RefWalks() uint64 { return c.refWalks.Load() }

// Expired returns the names of the refs whose time is over.
func (c *Catalog) Expired(now time.Time) []string {
	names, _ := c.RefsWhere(func(r *oplog.Ref) (bool, error) { return r.Expired(now), nil })
	return names
}

// IsNamed reports whether a ref is on block k.
func (c *Catalog) IsNamed(k kv.Key) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.blocks[k]) > 0
}

// RefsOn returns the names of the refs on block k, in no order.
func (c *Catalog) RefsOn(k kv.Key) (names []string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, r := range c.blocks[k] {
		names = append(names, r.Name)
	}
	return names
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
	if counts := c.classes[k]; len(counts) > 0 {
		return uint64(counts[len(counts)-1].priority)
	}
	return 0
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

// ref is a ref among those on its block. What it says never changes: who lists refs reads it without the lock.
type ref struct {
	oplog.Ref
	at int // its place among them
}

// classCount is how many refs of one block have a priority.
type classCount struct {
	priority uint8
	refs     int
}

func (c *Catalog) setRef(set oplog.Ref) {
	if old := c.refs[set.Name]; old != nil {
		c.take(old)
		c.former = max(c.former, oplog.FormerSet)
		c.formers++
	}
	r := &ref{Ref: set, at: len(c.blocks[set.Block])}
	c.refs[r.Name] = r
	c.blocks[r.Block] = append(c.blocks[r.Block], r)
	c.count(r, 1)
}

func (c *Catalog) dropRef(name string) {
	if r := c.refs[name]; r != nil {
		c.take(r)
		c.former = oplog.FormerDeleted
		c.formers++
	}
}

// take takes a ref out. The last one on its block gets its place.
func (c *Catalog) take(r *ref) {
	delete(c.refs, r.Name)
	on := c.blocks[r.Block]
	last := len(on) - 1
	on[r.at] = on[last]
	on[r.at].at = r.at
	on[last] = nil
	if c.blocks[r.Block] = on[:last]; last == 0 {
		delete(c.blocks, r.Block)
	}
	c.count(r, -1)
}

func (c *Catalog) count(r *ref, delta int) {
	c.refBytes += int64(delta) * r.Bytes()
	if r.Pinned {
		if c.pins[r.Block] += delta; c.pins[r.Block] == 0 {
			delete(c.pins, r.Block)
		}
		c.pinChanges.Add(1)
	}
	if r.Priority > 0 {
		c.countClass(r, delta)
	}
}

func (c *Catalog) countClass(r *ref, delta int) {
	counts := c.classes[r.Block]
	i, ok := slices.BinarySearchFunc(counts, r.Priority, func(x classCount, p uint8) int { return cmp.Compare(x.priority, p) })
	if !ok {
		counts = slices.Insert(counts, i, classCount{priority: r.Priority})
	}
	if counts[i].refs += delta; counts[i].refs == 0 {
		counts = slices.Delete(counts, i, i+1)
	}
	if len(counts) == 0 {
		delete(c.classes, r.Block)
		return
	}
	c.classes[r.Block] = counts
}

// RankBits is the width of the order in which blocks of one class are evicted; the byte of a rank above it holds the class.
const RankBits = 56

// RankMask takes the class out of a rank.
const RankMask = 1<<RankBits - 1

// Rank is the rank of block k: its class, and in that its order.
func (c *Catalog) Rank(k kv.Key, order uint64) uint64 { return c.Class(k)<<RankBits | order&RankMask }
