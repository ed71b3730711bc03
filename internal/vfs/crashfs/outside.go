package crashfs

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// A file that bbolt writes is a real file, because bbolt opens it by its name. Nothing tells the disk when bbolt writes
// or syncs, but it knows how: a transaction is written in this order,
//
//	data pages -> sync -> one meta page (0 or 1) -> sync
//
// and changes a meta page in any case. So the disk looks at the meta pages before every change of another file, and copies
// the file when they differ. What was found is durable then, because bbolt had finished: the caller of bbolt writes the
// next file. Only when the crash comes before that very change may it have hit bbolt's transaction itself; then a power
// cut leaves
//
//	the file as it was, with any of the new data pages;  all of the new pages but a torn meta page;  or the new file.

func (d *Disk) isOutside(rel string) bool { return slices.Contains(d.o.Outside, rel) }

// Settle says that whatever was written past the disk so far is done and synced: whoever wrote it has returned.
func (d *Disk) Settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.look()
	d.settle()
}

// settle: the caller holds mu.
func (d *Disk) settle() {
	for _, rel := range d.o.Outside {
		if n := d.names[rel]; n != nil && !d.crashed {
			n.uncertain = false
		}
	}
}

// look copies the files of Outside that have changed. The caller holds mu.
func (d *Disk) look() {
	if d.crashed || d.volume.gone {
		return
	}
	for _, rel := range d.o.Outside {
		n := d.names[rel]
		if n == nil { // made past the disk?
			f, err := os.Open(filepath.Join(d.o.Dir, rel))
			if err != nil {
				continue
			}
			n = &node{outside: true, real: f}
			d.do(change{dir: parent(rel), new: rel, node: n})
		}
		n.look(filepath.Join(d.o.Dir, rel), &d.head)
	}
}

// look copies a file of Outside if it has changed.
func (n *node) look(name string, meta *[metaBytes]byte) {
	if n.real == nil {
		f, err := os.Open(name)
		if err != nil {
			return
		}
		n.real = f
	}
	head := meta[:]
	k, err := n.real.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return
	}
	if head = head[:k]; !bytes.Equal(head, n.now[:min(len(n.now), metaBytes)]) {
		if b, err := os.ReadFile(name); err == nil {
			n.was, n.now, n.uncertain = n.now, b, true
		}
	}
	if runtime.GOOS == "windows" { // an open file could not be renamed
		n.real.Close()
		n.real = nil
	}
}

// left is what a power cut leaves of a file of Outside.
func (n *node) outsideLeft(rnd *rand.Rand) []byte {
	how := rnd.IntN(4)
	if !n.uncertain || how == 0 {
		return n.now
	}
	if how == 1 {
		return n.was
	}
	size := len(n.was)
	if how == 2 || rnd.IntN(2) == 0 {
		size = max(len(n.was), len(n.now)) // it was made longer first
	}
	b := make([]byte, size)
	copy(b, n.was)
	tear := func(from, to int, all bool) {
		for s := from; s < min(to, len(b), len(n.now)); s += sectorBytes {
			end := min(s+sectorBytes, len(b), len(n.now))
			switch {
			case all || rnd.IntN(2) == 0:
				copy(b[s:end], n.now[s:end])
			case rnd.IntN(8) == 0:
				copy(b[s:s+rnd.IntN(end-s)], n.now[s:end])
			}
		}
	}
	tear(metaBytes, len(b), how == 2)
	if how == 2 {
		tear(0, metaBytes, false)
	}
	return b
}
