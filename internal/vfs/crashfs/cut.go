package crashfs

import (
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// Loss says what a power cut takes of what is not durable; all else that was written is there.
type Loss struct {
	// All takes everything: names, sizes, contents.
	All bool
	// Sector reports whether the sector at off of a file is as it was when it was synced. Nil: none.
	Sector func(name string, off int64) bool
	// Back reports whether a name is there again that was removed since its directory was synced. Nil: none.
	Back func(name string) bool
}

// Cut is PowerCut with the loss said. It returns how many pieces were lost: sectors, sizes, changes of names; those that All takes are
// counted by file and name.
func (d *Disk) Cut(loss Loss, dir string) (out *Disk, lost int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.look()
	out = d.empty(dir)
	kept := maps.Clone(d.sure)
	for _, c := range d.since {
		switch {
		case loss.All:
			lost++
		case c.old != "" && c.new == "" && loss.Back != nil && loss.Back(c.old):
			lost++
		default:
			c.apply(kept)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		if dir := kept[parent(name)]; parent(name) != "." && (dir == nil || !dir.dir) {
			continue
		}
		n, k := kept[name].cut(func(off int64) bool { return loss.All || loss.Sector != nil && loss.Sector(name, off) }, loss.All)
		out.names[name] = n
		lost += k
	}
	out.sure = maps.Clone(out.names)
	return out, lost, out.writeOutside()
}

// cut is what is left of a file without the sectors that are lost, or with nothing but what was synced. All of that is durable.
func (n *node) cut(lost func(off int64) bool, all bool) (*node, int) {
	switch {
	case n.dir:
		return &node{dir: true}, 0
	case n.outside:
		return &node{outside: true, now: n.now, was: n.now}, 0
	}
	out, count, size, allocated := newNode(), 0, n.size(), n.allocated
	if all {
		size, allocated = n.sureSize, n.sureAllocated
		if len(n.pending)+len(n.sizes) > 0 {
			count = 1
		}
	}
	out.resize(size)
	copy(out.data, n.data)
	zeros := make([]byte, pageBytes)
	for p, pg := range n.pending {
		was, now := n.sure[p], pg.versions[len(pg.versions)-1]
		if was == nil {
			was = zeros
		}
		for s := int64(0); s < pageBytes; s += sectorBytes {
			off := p*pageBytes + s
			if off >= size || !lost(off) {
				continue
			}
			copy(out.data[off:], was[s:s+sectorBytes])
			if !all && string(was[s:s+sectorBytes]) != string(now[s:s+sectorBytes]) {
				count++
			}
		}
	}
	for p, is := range allocated {
		if from := int64(p) * pageBytes; is && from < size {
			out.allocate(from, from+1)
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
	out.pending, out.sizes = map[int64]*page{}, nil
	out.sureSize, out.sureAllocated = size, slices.Clone(out.allocated)
	return out, count
}
