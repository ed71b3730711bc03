package segments

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// halfAllocated is a file system that, as ext4 and xfs do, has allocated a part when it finds that the disk is full.
type halfAllocated struct {
	vfs.FS
	full *bool
}

type halfAllocatedFile struct {
	vfs.File
	full *bool
}

func (f halfAllocated) Create(name string) (vfs.File, error) {
	file, err := f.FS.Create(name)
	return halfAllocatedFile{file, f.full}, err
}

func (f halfAllocatedFile) Allocate(off, n int64) error {
	if *f.full && n > 64<<10 {
		return errors.Join(f.File.Allocate(off, n/2), vfs.ErrNoSpace)
	}
	return f.File.Allocate(off, n)
}

// What a full disk has given before it was full is given back, and the rest is counted.
func TestHalfAllocatedIsGivenBack(t *testing.T) {
	full := false
	o := options(t.TempDir())
	o.FS, o.SegmentBytes, o.AllocateStep = halfAllocated{vfs.OS, &full}, 8<<20, 64<<10
	s := openSet(t, o)
	makeBlock(1, 1, 100).append(t, s, 1)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	before := s.Allocated()
	full = true
	for i, size := range []int{1 << 20, 4 << 20, 12 << 20} {
		if _, err := try(s, makeBlock(1, uint64(i)+2, size), 1); !errors.Is(err, vfs.ErrNoSpace) {
			t.Fatal(err)
		}
		for _, info := range s.Segments() {
			real, err := vfs.OS.Stat(info.Path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Allocated != real.Allocated {
				t.Errorf("%d bytes: %s: %d bytes are allocated, the set knows of %d", size, info.Path, real.Allocated, info.Allocated)
			}
		}
		if n := s.Allocated(); n > before+2*64<<10 {
			t.Errorf("%d bytes: %d bytes are allocated, %d before", size, n, before)
		}
	}
	full = false
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Reservations that are given back in any order leave no gap behind.
func TestGivenBackInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		s := newSet(t)
		makeBlock(1, 1, 100).append(t, s, 1)
		w := s.allWriters()[0]
		g := w.active
		end := g.end
		var offs []int64
		for range order {
			_, _, off, err := s.reserve(w, g.head.model, 4096)
			if err != nil {
				t.Fatal(err)
			}
			defer g.unpinFile()
			offs = append(offs, off)
		}
		for _, i := range order {
			w.giveBack(g, offs[i], 4096)
		}
		if g.end != end || len(g.gaps) > 0 || len(g.inflight) > 0 {
			t.Errorf("%v: the segment ends at %d, %d before; gaps %v", order, g.end, end, g.gaps)
		}
	}
}
