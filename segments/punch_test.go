package segments

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// Destroying every second record gives its disk blocks back, and leaves the others as they are. Where no hole can be punched the set knows that,
// and the test says so.
func TestReclaimGivesBlocksBack(t *testing.T) {
	s := newSet(t)
	live := stored{}
	var dead []Loc
	want := int64(0)
	for i := range uint64(6) {
		if i%2 == 0 {
			live.add(t, s, 1, i, 20000)
			continue
		}
		loc := makeBlock(1, i, 20000).append(t, s, 1)
		dead, want = append(dead, loc), want+loc.Length
	}
	ok(t, s.SealAll())
	before := s.Allocated()
	s.Destroy(dead)
	if done := reclaim(t, s); len(done) != len(dead) {
		t.Fatalf("%d of %d records are destroyed", len(done), len(dead))
	}
	live.check(t, s)
	given, solid := before-s.Allocated(), s.Solid()
	ok(t, s.Close())
	switch {
	case solid && given > 0:
		t.Errorf("%d bytes came back where no holes can be punched", given)
	case solid:
		t.Skipf("SKIPPED: THE FILE SYSTEM OF %s, ON %s, PUNCHES NO HOLES: it was not tested that space comes back", t.TempDir(), runtime.GOOS)
	case given < want:
		t.Errorf("%d bytes came back of %d that were destroyed", given, want)
	}
}

// mapLocked is a disk that punches no hole into a file that is mapped, as Windows: it writes zeros.
type mapLocked struct {
	vfs.FS
	maps atomic.Int32
}

func (d *mapLocked) Create(name string) (vfs.File, error) {
	f, err := d.FS.Create(name)
	return &mapLockedFile{f, d}, err
}

func (d *mapLocked) Open(name string, readOnly bool) (vfs.File, error) {
	f, err := d.FS.Open(name, readOnly)
	return &mapLockedFile{f, d}, err
}

type mapLockedFile struct {
	vfs.File
	d *mapLocked
}

func (f *mapLockedFile) Map(size int64) (vfs.Mapping, error) {
	m, err := f.File.Map(size)
	if err != nil {
		return nil, err
	}
	f.d.maps.Add(1)
	return &mapLockedMap{m, f.d}, nil
}

func (f *mapLockedFile) Punch(off, n int64) (bool, error) {
	if f.d.maps.Load() == 0 {
		return f.File.Punch(off, n)
	}
	_, err := f.File.WriteAt(make([]byte, n), off)
	return false, err
}

type mapLockedMap struct {
	vfs.Mapping
	d *mapLocked
}

func (m *mapLockedMap) Close() error {
	m.d.maps.Add(-1)
	return m.Mapping.Close()
}

// Where a file that is mapped gets no holes, it is unmapped first. If somebody reads in it just then, the record is destroyed and its blocks stay.
func TestHolesInMappedFiles(t *testing.T) {
	old := holesUnderMaps
	holesUnderMaps = false
	t.Cleanup(func() { holesUnderMaps = old })
	for _, reading := range []bool{false, true} {
		o := options(diskDir)
		o.SegmentBytes = 1 << 20
		o.FS = &mapLocked{FS: crashfs.New(crashfs.Options{Dir: diskDir})}
		s := openSet(t, o)
		live := stored{}
		dead := []Loc{makeBlock(1, 0, 20000).append(t, s, 1), makeBlock(1, 1, 20000).append(t, s, 1)}
		at := live.add(t, s, 1, 2, 20000)
		dead = append(dead, makeBlock(1, 3, 20000).append(t, s, 1))
		ok(t, live[at].read(s, at)) // maps the file
		ok(t, s.Sync())
		before := s.Allocated()
		s.Destroy(dead)
		destroy := func() error {
			done, more, err := s.Reclaim(t.Context(), nil)
			if len(done) != len(dead) || more {
				t.Errorf("%d of %d records are destroyed", len(done), len(dead))
			}
			return err
		}
		if reading {
			ok(t, s.Read(at, func(*Record) error {
				done := make(chan error)
				go func() { done <- destroy() }()
				return <-done
			}))
		} else {
			ok(t, destroy())
		}
		for _, loc := range dead {
			if err := s.Read(loc, func(*Record) error { return nil }); !errors.Is(err, ErrDestroyed) {
				t.Errorf("a destroyed record: %v", err)
			}
		}
		live.check(t, s)
		given, want := before-s.Allocated(), int64(0)
		if !reading {
			want = dead[0].Length + dead[1].Length + dead[2].Length
		}
		if given != want || s.Solid() != reading {
			t.Errorf("reading %t: %d bytes came back, expected %d; solid %t", reading, given, want, s.Solid())
		}
		ok(t, s.Close())
	}
}
