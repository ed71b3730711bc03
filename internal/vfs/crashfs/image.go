package crashfs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// Kill returns what the next process finds after this one was killed: all that was written. What was not synced is not
// yet durable: a power cut may still take it. dir is the new disk's, a real and empty directory.
func (d *Disk) Kill(dir string) (*Disk, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.look()
	copies := map[*node]*node{}
	clone := func(n *node) *node {
		if n != nil && copies[n] == nil {
			copies[n] = n.clone()
		}
		return copies[n]
	}
	out := d.empty(dir)
	for name, n := range d.names {
		out.names[name] = clone(n)
	}
	for name, n := range d.sure {
		out.sure[name] = clone(n)
	}
	for _, c := range d.since {
		c.node = clone(c.node)
		out.since = append(out.since, c)
	}
	return out, out.writeOutside()
}

// PowerCut returns a disk as it could look after the power was lost now, or at the crash: of what was not durable, some is
// there and some is not. dir is the new disk's, a real and empty directory.
func (d *Disk) PowerCut(rnd *rand.Rand, dir string) (*Disk, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.look()
	out := d.empty(dir)
	kept := d.entriesLeft(rnd)
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		if dir := kept[parent(name)]; parent(name) != "." && (dir == nil || !dir.dir) {
			continue // its directory is lost, and it with that
		}
		out.names[name] = kept[name].left(rnd)
	}
	out.sure = maps.Clone(out.names)
	return out, out.writeOutside()
}

// writeOutside makes the real files.
func (d *Disk) writeOutside() error {
	for name, n := range d.names {
		if !n.outside {
			continue
		}
		if err := os.WriteFile(filepath.Join(d.o.Dir, name), n.now, 0o600); err != nil {
			return fmt.Errorf("crashfs: %w", err)
		}
	}
	return nil
}

// entriesLeft is what a power cut leaves of the directories: of the changes since they were synced none, all, the first
// few, or any.
func (d *Disk) entriesLeft(rnd *rand.Rand) map[string]*node {
	names := maps.Clone(d.sure)
	how, first := rnd.IntN(4), rnd.IntN(len(d.since)+1)
	for i, c := range d.since {
		keep := how == 1 || how == 2 && i < first || how == 3 && rnd.IntN(2) == 0
		if !keep {
			continue
		}
		if c.old != "" && c.new != "" && names[c.old] != c.node {
			continue // what it would have renamed is lost
		}
		c.apply(names)
	}
	return names
}

// left is what a power cut leaves of a file. All of that is durable.
func (n *node) left(rnd *rand.Rand) *node {
	switch {
	case n.dir:
		return &node{dir: true}
	case n.outside:
		b := n.outsideLeft(rnd)
		return &node{outside: true, now: b, was: b}
	}
	out := newNode()
	how := rnd.IntN(5) // of the pages that were not durable: none, all, any part of any, any of them whole, all but a few stretches
	size := n.sureSize
	if (how == 1 || how == 4) && len(n.sizes) > 0 {
		size = n.sizes[len(n.sizes)-1]
	} else if k := rnd.IntN(len(n.sizes) + 1); (how == 2 || how == 3) && k > 0 {
		size = n.sizes[k-1]
	}
	out.resize(size)
	put := func(p int64, b []byte) {
		if from := p * pageBytes; from < size {
			copy(out.data[from:], b)
		}
	}
	for p, b := range n.sure {
		put(p, b)
	}
	lost := 0 // pages of a stretch
	for _, p := range slices.Sorted(maps.Keys(n.pending)) {
		pg := n.pending[p]
		switch how {
		case 1:
			put(p, pg.versions[len(pg.versions)-1])
		case 2:
			put(p, pg.left(n.sure[p], rnd))
		case 3:
			if k := rnd.IntN(len(pg.versions) + 1); k > 0 {
				put(p, pg.versions[k-1])
			}
		case 4:
			if rnd.IntN(8) == 0 {
				lost = 1 + rnd.IntN(4)
			}
			if lost--; lost < 0 {
				put(p, pg.versions[len(pg.versions)-1])
			}
		}
	}
	from := n.sureAllocated
	if rnd.IntN(2) == 0 {
		from = n.allocated
	}
	for p := range int64(len(from)) {
		if from[p] && p*pageBytes < size {
			out.allocate(p*pageBytes, p*pageBytes+1)
		}
	}
	for p := int64(0); p*pageBytes < size; p++ {
		b := make([]byte, pageBytes)
		copy(b, out.data[p*pageBytes:])
		if !vfs.Blank(b) {
			out.sure[p] = b
			out.allocate(p*pageBytes, p*pageBytes+1)
		}
	}
	out.sureSize, out.sizes, out.sureAllocated = size, nil, slices.Clone(out.allocated)
	return out
}

// left is what is left of a page: of each sector one of its versions, of some the beginning or the end of the next.
func (pg *page) left(sure []byte, rnd *rand.Rand) []byte {
	if sure == nil {
		sure = make([]byte, pageBytes)
	}
	out := make([]byte, pageBytes)
	version := func(v int) []byte {
		if v == 0 {
			return sure
		}
		return pg.versions[v-1]
	}
	for s := 0; s < pageBytes; s += sectorBytes {
		v := rnd.IntN(len(pg.versions) + 1)
		sector := out[s : s+sectorBytes]
		copy(sector, version(v)[s:])
		if v == len(pg.versions) || rnd.IntN(8) > 0 {
			continue
		}
		next, cut := version(v + 1)[s:s+sectorBytes], rnd.IntN(sectorBytes)
		if rnd.IntN(2) == 0 {
			copy(sector[:cut], next)
		} else {
			copy(sector[cut:], next[cut:])
		}
	}
	return out
}

// clone copies a node. Pages are never changed in place, so they are shared.
func (n *node) clone() *node {
	out := *n
	out.maps, out.real = nil, nil
	out.data = slices.Clone(n.data)
	out.data = out.data[:len(out.data):len(out.data)] // what slices.Clone has in excess need not be zero
	out.allocated = slices.Clone(n.allocated)
	out.sureAllocated = slices.Clone(n.sureAllocated)
	out.sure = maps.Clone(n.sure)
	out.sizes = slices.Clone(n.sizes)
	out.pending = map[int64]*page{}
	for p, pg := range n.pending {
		out.pending[p] = &page{versions: slices.Clone(pg.versions), stuck: pg.stuck}
	}
	out.uncertain = false
	return &out
}
