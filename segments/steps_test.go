package segments

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// steps is a file system that calls step before each operation that changes or syncs something, and lists what was done. Unlike
// with faults, step may use the Set.
type steps struct {
	vfs.FS
	step func(op string) error

	mu   sync.Mutex
	done []string
}

func (f *steps) do(op string, do func() error) error {
	if f.step != nil {
		if err := f.step(op); err != nil {
			return err
		}
	}
	err := do()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = append(f.done, op)
	return err
}

func (f *steps) Create(name string) (vfs.File, error) {
	file, err := f.FS.Create(name)
	return &stepFile{file, f}, err
}

func (f *steps) Open(name string, readOnly bool) (vfs.File, error) {
	file, err := f.FS.Open(name, readOnly)
	if err != nil {
		return nil, err
	}
	return &stepFile{file, f}, nil
}

func (f *steps) Remove(name string) error {
	return f.do("remove", func() error { return f.FS.Remove(name) })
}

func (f *steps) SyncDir(dir string) error {
	return f.do("syncdir", func() error { return f.FS.SyncDir(dir) })
}

type stepFile struct {
	vfs.File
	of *steps
}

func (f *stepFile) WriteAt(b []byte, off int64) (n int, err error) {
	err = f.of.do("write", func() error { n, err = f.File.WriteAt(b, off); return err })
	return n, err
}

func (f *stepFile) Punch(off, n int64) (freed bool, err error) {
	err = f.of.do("punch", func() error { freed, err = f.File.Punch(off, n); return err })
	return freed, err
}

func (f *stepFile) Sync() error { return f.of.do("sync", f.File.Sync) }

func stepSet(t *testing.T) (*Set, *steps) {
	f := &steps{FS: vfs.OS}
	o := options(t.TempDir())
	o.FS = f
	return openSet(t, o), f
}

// A Sync of somebody else between any two steps of a Reclaim does not take its fsync away: what Reclaim says is gone for good
// was synced after the last of it went.
func TestSyncBetweenStepsOfReclaim(t *testing.T) {
	for i := 0; ; i++ {
		s, f := stepSet(t)
		var locs []Loc
		for k := range uint64(2) {
			locs = append(locs, makeBlock(1, k, 9000).append(t, s, 1))
		}
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		s.Destroy(locs)
		n := 0
		f.done = nil
		f.step = func(op string) error {
			if op == "sync" { // of one file there is one at a time
				return nil
			}
			if n++; n == i+1 {
				synced := make(chan error) // by somebody else
				go func() { synced <- s.Sync() }()
				return <-synced
			}
			return nil
		}
		if done, err := s.Reclaim(t.Context()); err != nil || len(done) != len(locs) {
			t.Fatal(done, err)
		}
		last := max(slices.Index(f.done, "punch"), 0)
		for k, op := range f.done {
			if op != "sync" {
				last = k
			}
		}
		if !slices.Contains(f.done[last:], "sync") {
			t.Errorf("with a Sync before step %d: nothing syncs the last: %v", i, f.done)
		}
		f.step = nil
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if n <= i {
			if i < 4 {
				t.Errorf("only %d steps", i)
			}
			return
		}
	}
}

// A process that was killed in Reclaim may have removed a file and not made that durable. Records of a file that is not there are
// gone for good only when the folder was synced.
func TestReclaimOfMissingFileSyncsFolder(t *testing.T) {
	s, f := stepSet(t)
	s.Destroy([]Loc{{Segment: 7, Offset: 4096, Length: 4096}})
	if done, err := s.Reclaim(t.Context()); err != nil || len(done) != 1 {
		t.Fatal(done, err)
	}
	if !slices.Contains(f.done, "syncdir") {
		t.Errorf("nothing syncs the folder: %v", f.done)
	}
	f.step = func(op string) error {
		if op == "syncdir" {
			return errors.New("the disk is gone")
		}
		return nil
	}
	s.Destroy([]Loc{{Segment: 7, Offset: 4096, Length: 4096}})
	if done, err := s.Reclaim(t.Context()); err == nil || len(done) > 0 || s.Err() == nil {
		t.Errorf("%v, %v", done, err)
	}
	s.Abandon()
}

// A segment whose footer is written is cut by the next Sync that gets to its end, should the first one fail on the way.
func TestSyncThatFailsCutsNextTime(t *testing.T) {
	s, _ := stepSet(t)
	loc := makeBlock(1, 1, 5000).append(t, s, 1)
	left := &segment{set: s, id: 99, path: t.TempDir(), left: true} // what is no file cannot be opened: no fsync has failed
	trouble := errors.New("too many open files")
	fsys := s.o.FS
	s.o.FS = &openFails{fsys, left.path, trouble}
	s.noteDirty(left)
	if err := s.Seal(loc.Segment); !errors.Is(err, trouble) {
		t.Fatal(err)
	}
	s.o.FS = fsys
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if info := s.Segments()[0]; !info.Sealed || info.Size >= s.segmentBytes() {
		t.Errorf("the file keeps its planned size: %+v", info)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

type openFails struct {
	vfs.FS
	name string
	err  error
}

func (f *openFails) Open(name string, readOnly bool) (vfs.File, error) {
	if name == f.name {
		return nil, f.err
	}
	return f.FS.Open(name, readOnly)
}

// A walk does not come upon a record that is being written: room that was given back is not given out again below the offset at
// which it ends.
func TestWalkBesideRoomThatIsGivenBack(t *testing.T) {
	s, _ := stepSet(t)
	b := makeBlock(1, 1, 5000)
	first := b.append(t, s, 1)
	_, fp := testModel(1)
	w := s.writers[fp]
	take := func() (*segment, vfs.File, int64) {
		g, f, off, err := s.reserve(w, fp, first.Length)
		if err != nil {
			t.Fatal(err)
		}
		return g, f, off
	}
	giveBack := func(g *segment, off int64) {
		w.giveBack(g, off, first.Length)
		g.unpinFile()
	}
	g, _, gap := take()
	_, _, later := take()
	giveBack(g, gap) // the disk is full
	var again int64
	_, err := s.Scan(t.Context(), g.id, 0, func(Loc, *Record) error {
		giveBack(g, later)
		var f vfs.File
		_, f, again = take()
		_, err := f.WriteAt(b.planes[0][:2000], again) // half-way
		return err
	}, func(e *damage.Error) { t.Error(e) })
	if err != nil {
		t.Fatal(err)
	}
	if again != later {
		t.Errorf("room is given out at %d, while a walk goes up to %d", again, later)
	}
	giveBack(g, again)
	s.Abandon()
}

// Nobody hears of a failed fsync before the mark is made by which the next process knows of it.
func TestMarkComesBeforeError(t *testing.T) {
	o := options(t.TempDir())
	f := &steps{FS: vfs.OS}
	o.FS = f
	var s *Set
	marked := 0
	o.Poisoned = func() {
		marked++
		if s.mu.TryRLock() { // not its method: it may wait for this
			defer s.mu.RUnlock()
		}
		if s.poison != nil {
			t.Error("the error is known already")
		}
	}
	s = openSet(t, o)
	makeBlock(1, 1, 100).append(t, s, 1)
	f.step = func(op string) error {
		if op == "sync" {
			return errors.New("the disk is gone")
		}
		return nil
	}
	if err := s.Sync(); err == nil || s.Err() == nil || marked != 1 {
		t.Errorf("%v, marked %d times", err, marked)
	}
	s.Abandon()
}

// While one goroutine syncs the folder no other one does: the system tells of a failure once, and who comes later must find it
// known.
func TestFolderIsSyncedByOneAtATime(t *testing.T) {
	s, f := stepSet(t)
	makeBlock(1, 1, 100).append(t, s, 1)
	n := 0
	f.step = func(op string) error {
		if op == "syncdir" {
			if n++; s.folder.TryLock() {
				s.folder.Unlock()
				t.Error("another one may sync the folder")
			}
		}
		return nil
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	s.Unlink(1)
	if _, err := s.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n != 2 {
		t.Errorf("the folder was synced %d times", n)
	}
	f.step = func(op string) error {
		if op == "syncdir" {
			return errors.New("the disk is gone")
		}
		return nil
	}
	if err := s.Sync(); err == nil || s.Err() == nil { // Reclaim removed a name
		t.Error(err)
	}
	s.Abandon()
}
