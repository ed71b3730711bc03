package segments

import (
	"errors"
	"os"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

func TestAppendReadReopen(t *testing.T) {
	o := options(t.TempDir())
	s := openSet(t, o)
	all := stored{}
	for i := range uint64(40) {
		all.add(t, s, int(i%3), i, 1000, 3000, 17)
	}
	all.check(t, s)
	if held := s.Trim(); held == 0 {
		t.Error("unsynced files were closed")
	}
	all.check(t, s)
	ok(t, s.Sync())
	if held := s.Trim(); held != 0 {
		t.Errorf("%d segments still hold files after Sync and Trim", held)
	}
	all.check(t, s)
	ok(t, s.Close())
	if err := s.Close(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}

	s = openSet(t, o)
	all.check(t, s)
	for _, info := range s.Segments() {
		if !info.Sealed || info.Active || info.Err != nil {
			t.Errorf("after a clean close: %+v", info)
		}
		st := must(os.Stat(info.Path))(t)
		if st.Size() > 2*o.SegmentBytes || info.Allocated > alignUp(st.Size(), 4096)+16<<10 { // some for the file system's own tables
			t.Errorf("%s: size %d, allocated %d: more than its records need", info.Path, st.Size(), info.Allocated)
		}
		if d := must(s.Descriptor(info.ID))(t); d.Fingerprint() != info.Model {
			t.Errorf("%+v of model %s", d, info.Model)
		}
	}
	ok(t, s.Close())
}

// Whatever ends a process, the next one appends to new files with new ids.
func TestReopenStartsNewFiles(t *testing.T) {
	o := options(t.TempDir())
	contents := map[string]string{} // of files, by path
	for round := range uint64(6) {
		s := openSet(t, o)
		if round == 3 {
			s.RaiseID(100)
		}
		loc := makeBlock(1, round, 500).append(t, s, 1)
		path := s.files.byID[loc.Segment].path
		if contents[path] != "" {
			t.Fatalf("segment %d was appended to by two processes", loc.Segment)
		}
		if round >= 3 && loc.Segment <= 100 {
			t.Fatalf("id %d after RaiseID(100)", loc.Segment)
		}
		for path, content := range contents {
			if string(must(os.ReadFile(path))(t)) != content {
				t.Fatalf("%s changed", path)
			}
		}
		if round%2 == 0 {
			s.Abandon() // like a kill: nothing is sealed
		} else {
			ok(t, s.Close())
		}
		contents[path] = string(must(os.ReadFile(path))(t))
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{}, {Dir: "x", SegmentBytes: -1}, {Dir: "x", SegmentBytes: maxRecordBytes + 1}, {Dir: "x", AllocateStep: -1}} {
		if _, err := Open(o); err == nil {
			t.Errorf("opened with %v", o)
		}
	}
}

// The sum is what the file system says, and hints never hurt.
func TestAllocatedAndReadAhead(t *testing.T) {
	s := newSet(t)
	for i := range uint64(9) {
		loc := makeBlock(1, i, 9000).append(t, s, 1)
		s.ReadAhead(loc)
		s.ReadAhead(Loc{Segment: loc.Segment, Offset: 1 << 50, Length: 1 << 50})
		s.ReadAhead(Loc{Segment: 99, Offset: -1, Length: -1})
		var sum int64
		for _, info := range s.Segments() {
			sum += must(vfs.OS.Stat(info.Path))(t).Allocated
		}
		if got := s.Allocated(); got != sum {
			t.Errorf("%d bytes are allocated, expected %d", got, sum)
		}
	}
	ok(t, s.Close())
}

func TestLargeRecordLivesAlone(t *testing.T) {
	s := newSet(t)
	all := stored{}
	first := all.add(t, s, 1, 1, 100)
	own := all.add(t, s, 1, 2, 300<<10)
	next := all.add(t, s, 1, 3, 100)
	if own.Segment == first.Segment || next.Segment != first.Segment {
		t.Errorf("large record in %d, small ones in %d and %d", own.Segment, first.Segment, next.Segment)
	}
	ok(t, s.Sync())
	all.check(t, s)
	for _, info := range s.Segments() {
		if info.ID == own.Segment && (!info.Sealed || info.Active) {
			t.Errorf("%+v", info)
		}
	}
	ok(t, s.Close())
}

func TestCopy(t *testing.T) {
	o := options(t.TempDir())
	s := openSet(t, o)
	b := makeBlock(1, 1, 5000, 700)
	from := b.append(t, s, 1)
	ok(t, s.Close())
	s = openSet(t, o)
	to := must(s.Copy(from, 99))(t)
	if to.Segment == from.Segment || to.Length != from.Length {
		t.Error(from, to)
	}
	ok(t, b.read(s, from))
	b.meta.Seq = 99
	ok(t, b.read(s, to))
	flip(t, s.files.byID[from.Segment].path, from.Offset+5000)
	if _, err := s.Copy(from, 100); !errors.Is(err, errCorrupt) {
		t.Errorf("a damaged plane was copied: %v", err)
	}
	ok(t, s.Close())
}

func TestIdentify(t *testing.T) {
	o := options(t.TempDir())
	if _, _, found, err := Identify(vfs.OS, o.Dir); found || err != nil {
		t.Fatal(found, err)
	}
	s := openSet(t, o)
	makeBlock(1, 1, 10).append(t, s, 1)
	makeBlock(2, 1, 10).append(t, s, 2)
	s.Abandon()
	flip(t, s.files.byID[1].path, 20)
	uuid, seed, found, err := Identify(vfs.OS, o.Dir)
	if uuid != testUUID || seed != testSeed || !found || err != nil {
		t.Error(uuid, seed, found, err)
	}
	flip(t, s.files.byID[2].path, 20)
	if _, _, found, err := Identify(vfs.OS, o.Dir); found || !errors.Is(err, errCorrupt) {
		t.Error(found, err)
	}
}

func TestReadOnlyWritesNothing(t *testing.T) {
	s, d, o := onDisk(t)
	b := makeBlock(1, 1, 5000)
	loc := b.append(t, s, 1)
	s.Abandon()
	o.ReadOnly = true
	d.fails(func(op crashfs.Op) error {
		if op.Changes() {
			t.Errorf("a read-only set called %s", op.Kind)
		}
		return nil
	})
	s = openSet(t, o)
	ok(t, b.read(s, loc))
	_, err := b.try(t, s, 1)
	_, cerr := s.Copy(loc, 2)
	_, _, rerr := s.Reclaim(t.Context(), nil)
	for _, err := range []error{err, cerr, rerr, s.Sync(), s.SealAll(), s.SealRecovered(1, loc.End())} {
		if !errors.Is(err, ErrReadOnly) {
			t.Error(err)
		}
	}
	ok(t, s.Close())
}

func TestMissingFileIsOnlyDamage(t *testing.T) {
	o := options(t.TempDir())
	s := openSet(t, o)
	b := makeBlock(1, 1, 5000)
	loc := b.append(t, s, 1)
	ok(t, s.Close())
	s = openSet(t, o)
	ok(t, os.Remove(s.files.byID[loc.Segment].path))
	for _, l := range []Loc{loc, {Segment: 77, Offset: 4096, Length: 4096}} {
		if err := b.read(s, l); !errors.Is(err, ErrMissing) || !errors.Is(err, errCorrupt) {
			t.Error(err)
		}
	}
	s.Destroy([]Loc{loc})
	if done, _, err := s.Reclaim(t.Context(), nil); len(done) != 1 || err != nil {
		t.Error(done, err)
	}
	ok(t, s.Close())
}
