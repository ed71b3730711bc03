package segments

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

// left is a set whose process is over, and where its segments end.
func left(t testing.TB, s *Set) map[uint64]int64 {
	t.Helper()
	ok(t, s.Rest())
	ends := s.OpenEnds()
	ok(t, s.Abandon())
	for id, end := range ends {
		if info, err := s.files.o.FS.Stat(s.files.byID[id].path); err != nil || info.Size != end || info.Allocated > end {
			t.Errorf("segment %d: %+v, %v: expected %d bytes", id, info, err, end)
		}
	}
	return ends
}

// resumed is a set that goes on with what another left.
func resumed(t testing.TB, o Options, ends map[uint64]int64) *Set {
	t.Helper()
	s := openSet(t, o)
	for id, end := range ends {
		if !s.EndsAt(id, end) || !s.Resume(id, end) {
			t.Fatalf("segment %d is not gone on with from %d", id, end)
		}
	}
	return s
}

// Processes that put little, one after the other, to two models in turns, leave as many segments as one that puts all of it.
func TestSegmentsGoOn(t *testing.T) {
	_, _, o := onDisk(t)
	o.SegmentBytes = 1 << 20
	all, ends := stored{}, map[uint64]int64{}
	for i := range uint64(40) {
		s := resumed(t, o, ends)
		all.add(t, s, int(i%2), i, 3000)
		if i%5 == 0 { // who puts nothing leaves it as it was
			all.add(t, s, 1-int(i%2), 100+i, 2000)
		}
		all.check(t, s)
		ends = left(t, s)
		s = resumed(t, o, ends)
		all.check(t, s)
		if got := left(t, s); len(got) != len(ends) {
			t.Fatalf("%v, before %v", got, ends)
		}
	}
	s := resumed(t, o, ends)
	if n := len(s.Segments()); n != 2 {
		t.Errorf("%d segments, expected one for each model", n)
	}
	for id := range ends {
		if bad, remains := verify(t, s, id, nil); len(bad)+len(remains) > 0 {
			t.Error(bad, remains)
		}
	}
	all.check(t, s)
	s.Abandon()
}

// Who reads while a segment gets longer again reads on, and others read what comes.
func TestReadersOfASegmentThatGoesOn(t *testing.T) {
	o := options(t.TempDir())
	o.SegmentBytes = 1 << 20
	s := openSet(t, o)
	all := stored{}
	first := all.add(t, s, 1, 1, 5000)
	s = resumed(t, o, left(t, s))
	beside := o
	beside.ReadOnly = true
	reader := openSet(t, beside)
	all.check(t, reader)
	ok(t, s.Read(first, func(r *Record) error {
		second := all.add(t, s, 1, 2, 5000)
		if second.Segment != first.Segment || second.Offset != first.End() {
			t.Errorf("the next record is at %v, expected behind %v", second, first)
		}
		all.check(t, s)
		return r.Verify()
	}))
	all.check(t, s)
	if err := s.Read(first, func(r *Record) error { return r.Verify() }); err != nil || s.files.maps.Load() != 1 {
		t.Errorf("%v; %d maps", err, s.files.maps.Load())
	}
	ok(t, reader.Read(first, func(r *Record) error { return r.Verify() }))
	reader.Abandon()
	left(t, s)
}

// What a sync cuts of a segment that rests is not what comes at the same time.
func TestRestBesideAnAppend(t *testing.T) {
	s, d, o := onDisk(t)
	all := stored{}
	first := all.add(t, s, 1, 1, 100)
	s.Abandon() // killed: it has its planned size
	s = openSet(t, o)
	all.check(t, s)
	if !s.Resume(first.Segment, first.End()) {
		t.Fatal("not gone on with")
	}
	cut, added := false, make(chan Loc, 1)
	d.fails(func(op crashfs.Op) error {
		if op.Kind != "truncate" || cut {
			return nil
		}
		cut = true
		done := make(chan struct{})
		go func() {
			defer close(done)
			added <- makeBlock(1, 2, 3000).append(t, s, 1)
		}()
		select {
		case <-done:
		case <-time.After(20 * time.Millisecond): // it waits, as it should
		}
		return nil
	})
	ok(t, s.Sync())
	loc := <-added
	all[loc] = makeBlock(1, 2, 3000)
	ok(t, s.Sync())
	all.check(t, s)
	if !cut || loc.Segment != first.Segment {
		t.Fatalf("cut %t, and the record is at %v: this shows nothing", cut, loc)
	}
	s.Abandon()
}

// Only what can be gone on with is, and what cannot stays as it is.
func TestWhatIsNotGoneOnWith(t *testing.T) {
	d, fp := testModel(1)
	renamed := *d
	renamed.Name = "another name"
	for name, c := range map[string]struct {
		before func(path string, loc Loc) error
		end    func(loc Loc) int64
		o      func(o *Options)
		d      *kv.Descriptor
	}{
		"an end that is no place of a record":    {end: func(loc Loc) int64 { return loc.End() - 512 }},
		"a file that is shorter than was said":   {end: func(loc Loc) int64 { return loc.End() + minAlignment }},
		"a segment that is longer than new ones": {o: func(o *Options) { o.SegmentBytes /= 2 }},
		"another name of the model":              {d: &renamed},
		"a file of another":                      {before: func(path string, _ Loc) error { return os.WriteFile(path, make([]byte, 12<<10), 0o600) }},
		"a file that is gone":                    {before: func(path string, _ Loc) error { return os.Remove(path) }},
		"a damaged header": {before: func(path string, _ Loc) error {
			return flipByte(path, 50)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t.TempDir())
			s := openSet(t, o)
			b := makeBlock(1, 1, 3000)
			loc := b.append(t, s, 1)
			left(t, s)
			path := filepath.Join(o.Dir, segmentName(loc.Segment))
			if c.before != nil {
				ok(t, c.before(path, loc))
			}
			before, _ := os.ReadFile(path)
			end := loc.End()
			if c.end != nil {
				end = c.end(loc)
			}
			if c.o != nil {
				c.o(&o)
			}
			s = openSet(t, o)
			s.RaiseID(loc.Segment)
			s.Resume(loc.Segment, end)
			desc := d
			if c.d != nil {
				desc = c.d
			}
			r := makeBlock(1, 2, 3000).build(t)
			next := must(s.Append(desc, fp, r))(t)
			r.Release()
			if next.Segment == loc.Segment {
				t.Fatalf("the next record is at %v", next)
			}
			if name != "a file that is gone" {
				if open := s.OpenEnds(); len(open) != 1 || open[next.Segment] != next.End() {
					t.Errorf("open: %v", open)
				}
				if after, _ := os.ReadFile(path); string(after) != string(before) {
					t.Error("the file was changed")
				}
			}
			ok(t, s.Rest())
			s.Abandon()
		})
	}
}

func flipByte(path string, at int64) error {
	b, err := os.ReadFile(path)
	if err == nil {
		b[at] ^= 1
		err = os.WriteFile(path, b, 0o600)
	}
	return err
}

// A retired model, and what is emptied or moved, is not gone on with.
func TestFinish(t *testing.T) {
	s, _, o := onDisk(t)
	all := stored{}
	first, other := all.add(t, s, 1, 1, 3000), all.add(t, s, 2, 2, 3000)
	s = resumed(t, o, left(t, s))
	_, fp := testModel(1)
	s.Forget(fp)
	if next := all.add(t, s, 1, 3, 3000); next.Segment == first.Segment {
		t.Error("a segment of a model that was forgotten is gone on with")
	}
	if !s.Finish(other.Segment) {
		t.Error("a segment that rests is appended to")
	}
	next := all.add(t, s, 2, 4, 3000)
	if next.Segment == other.Segment {
		t.Error("a finished segment is gone on with")
	}
	if s.Finish(next.Segment) {
		t.Error("a segment that is appended to is finished")
	}
	all.check(t, s)
	s.Abandon()
}

// There are never many more maps than maxMaps, and what is in use stays.
func TestMapsAreBounded(t *testing.T) {
	defer func(was int64) { maxMaps = was }(maxMaps)
	maxMaps = 8
	o := options(t.TempDir())
	s := openSet(t, o)
	all := stored{}
	for i := range uint64(40) {
		all.add(t, s, 1, i, 60<<10-700) // which fills a segment
	}
	held := all.add(t, s, 1, 100, 100)
	ok(t, s.Read(held, func(r *Record) error {
		for range 3 {
			all.check(t, s)
			if n := s.files.maps.Load(); n > maxMaps+1 {
				t.Errorf("%d maps, at most %d", n, maxMaps)
			}
		}
		return r.Verify()
	}))
	ok(t, s.Close())
	if n := s.files.maps.Load(); n != 0 {
		t.Errorf("%d maps are left", n)
	}
}

// noMaps is a disk that has no more maps to give.
type noMaps struct {
	vfs.FS
	left int
}

type noMapsFile struct {
	vfs.File
	d *noMaps
}

func (d *noMaps) Open(name string, readOnly bool) (vfs.File, error) {
	f, err := d.FS.Open(name, readOnly)
	if err != nil {
		return nil, err
	}
	return noMapsFile{f, d}, nil
}

func (f noMapsFile) Map(size int64) (vfs.Mapping, error) {
	if f.d.left == 0 {
		return nil, errNoMemory
	}
	m, err := f.File.Map(size)
	if err != nil {
		return nil, err
	}
	f.d.left--
	return countedMap{m, f.d}, nil
}

type countedMap struct {
	vfs.Mapping
	d *noMaps
}

func (m countedMap) Close() error { m.d.left++; return m.Mapping.Close() }

// Where the process may have no more maps, those that nobody uses are given back.
func TestNoMaps(t *testing.T) {
	o := options(t.TempDir())
	s := openSet(t, o)
	all := stored{}
	for i := range uint64(10) {
		all.add(t, s, 1, i, 60<<10-700)
	}
	ok(t, s.Close())
	o.FS = &noMaps{FS: vfs.OS, left: 3}
	s = openSet(t, o)
	all.check(t, s)
	all.check(t, s)
	s.Abandon()
}

// The planned size of a segment that is gone on with is durable before a record is written behind its end, as that of a new one is: a file that
// ends before its records was cut by somebody, and by no power cut.
func TestWokenSizeIsDurable(t *testing.T) {
	s, d, o := onDisk(t)
	stored{}.add(t, s, 1, 1, 100)
	s = resumed(t, o, left(t, s))
	loc := makeBlock(1, 2, 3000).append(t, s, 1)
	image, _, err := d.Cut(crashfs.Loss{All: true}, t.TempDir())
	ok(t, err)
	info, err := image.Stat(filepath.Join(image.Dir(), segmentName(loc.Segment)))
	if err != nil || info.Size < loc.End() {
		t.Errorf("behind a power cut that took all that was not synced: %+v, %v: the record that lay at %d to %d was in the file", info, err, loc.Offset, loc.End())
	}
}
