package segments

import (
	"errors"
	"os"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

func TestAppendReadReopen(t *testing.T) {
	o := options(t.TempDir())
	s := openSet(t, o)
	blocks := map[Loc]block{}
	for i := range uint64(40) {
		b := makeBlock(int(i%3), i, 1000, 3000, 17)
		blocks[b.append(t, s, int(i%3))] = b
	}
	check := func() {
		t.Helper()
		for loc, b := range blocks {
			if err := b.read(s, loc); err != nil {
				t.Error(loc, err)
			}
		}
		for _, info := range s.Segments() {
			if bad, remains := verify(t, s, info.ID, nil); len(bad)+len(remains) > 0 {
				t.Error(bad, remains)
			}
		}
	}
	check()
	if held := s.Trim(); held == 0 {
		t.Error("unsynced files were closed")
	}
	check()
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if held := s.Trim(); held != 0 {
		t.Errorf("%d segments still hold files after Sync and Trim", held)
	}
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}

	s = openSet(t, o)
	check()
	for _, info := range s.Segments() {
		if !info.Sealed || info.Active || info.Err != nil {
			t.Errorf("after a clean close: %+v", info)
		}
		st, err := os.Stat(info.Path)
		if err != nil || st.Size() > 2*o.SegmentBytes || info.Allocated > alignUp(st.Size(), 4096)+16<<10 { // some for the file system's own tables
			t.Errorf("%s: size %d, allocated %d: more than its records need", info.Path, st.Size(), info.Allocated)
		}
		d, err := s.Descriptor(info.ID)
		if err != nil || d.Fingerprint() != info.Model {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Whatever ends a process, the next one appends to new files with new ids.
func TestReopenStartsNewFiles(t *testing.T) {
	o := options(t.TempDir())
	seen := map[uint64]bool{}
	var sizes = map[string]string{}
	for round := range uint64(6) {
		s := openSet(t, o)
		if round == 3 {
			s.RaiseID(100)
		}
		loc := makeBlock(1, round, 500).append(t, s, 1)
		if seen[loc.Segment] {
			t.Fatalf("segment %d was appended to by two processes", loc.Segment)
		}
		if round >= 3 && loc.Segment <= 100 {
			t.Fatalf("id %d after RaiseID(100)", loc.Segment)
		}
		seen[loc.Segment] = true
		for path, content := range sizes {
			if got, err := os.ReadFile(path); err != nil || string(got) != content {
				t.Fatalf("%s changed", path)
			}
		}
		if round%2 == 0 {
			s.Abandon() // like a kill: nothing is sealed
		} else if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		path := s.segs[loc.Segment].path
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sizes[path] = string(content)
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
			st, err := vfs.OS.Stat(info.Path)
			if err != nil {
				t.Fatal(err)
			}
			sum += st.Allocated
		}
		if got := s.Allocated(); got != sum {
			t.Errorf("%d bytes are allocated, expected %d", got, sum)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestLargeRecordLivesAlone(t *testing.T) {
	s := newSet(t)
	small := makeBlock(1, 1, 100)
	first := small.append(t, s, 1)
	large := makeBlock(1, 2, 300<<10)
	own := large.append(t, s, 1)
	next := small.append(t, s, 1)
	if own.Segment == first.Segment || next.Segment != first.Segment {
		t.Errorf("large record in %d, small ones in %d and %d", own.Segment, first.Segment, next.Segment)
	}
	if err := large.read(s, own); err != nil {
		t.Error(err)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	for _, info := range s.Segments() {
		if info.ID == own.Segment && (!info.Sealed || info.Active) {
			t.Errorf("%+v", info)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSealRecovered(t *testing.T) {
	o := options(t.TempDir())
	s := openSet(t, o)
	a, b := makeBlock(1, 1, 5000), makeBlock(1, 2, 5000)
	la, lb := a.append(t, s, 1), b.append(t, s, 1)
	s.Abandon()

	s = openSet(t, o)
	if info := s.Segments()[0]; info.Sealed || info.Active || info.Size != o.SegmentBytes {
		t.Fatalf("%+v", info)
	}
	if err := s.SealRecovered(la.Segment, la.End()); err == nil {
		t.Fatal("a record was cut away")
	}
	end, err := s.Scan(t.Context(), la.Segment, la.End(), func(Loc, *Record) error { return nil }, nil)
	if err != nil || end != lb.End() {
		t.Fatal(end, err)
	}
	for range 2 {
		if err := s.SealRecovered(la.Segment, end); err != nil {
			t.Fatal(err)
		}
	}
	info := s.Segments()[0]
	if !info.Sealed || info.End != end || info.Size >= o.SegmentBytes {
		t.Fatalf("%+v", info)
	}
	for loc, x := range map[Loc]block{la: a, lb: b} {
		if err := x.read(s, loc); err != nil {
			t.Error(err)
		}
	}
	if bad, remains := verify(t, s, la.Segment, nil); len(bad)+len(remains) > 0 {
		t.Error(bad, remains)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A file whose header was never written holds nothing, and damage is not sealed over.
func TestSealRecoveredOfDamagedFiles(t *testing.T) {
	o := options(t.TempDir())
	s := openSet(t, o)
	var locs []Loc
	for i := range 2 {
		locs = append(locs, makeBlock(i, 1, 5000).append(t, s, i))
	}
	s.Abandon()
	unborn := s.segs[locs[0].Segment].path
	if err := os.WriteFile(unborn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cut := s.segs[locs[1].Segment].path
	if err := os.Truncate(cut, o.SegmentBytes/2); err != nil {
		t.Fatal(err)
	}
	s = openSet(t, o)
	for _, info := range s.Segments() {
		end, err := s.Scan(t.Context(), info.ID, 0, func(Loc, *Record) error { return nil }, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SealRecovered(info.ID, end); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(unborn); !errors.Is(err, os.ErrNotExist) {
		t.Error("a file without a header is still there")
	}
	if bad, _ := verify(t, s, locs[1].Segment, nil); len(bad) == 0 {
		t.Error("a file that was cut became sound by sealing")
	}
	s.Close()
}

func TestCopy(t *testing.T) {
	o := options(t.TempDir())
	s := openSet(t, o)
	b := makeBlock(1, 1, 5000, 700)
	from := b.append(t, s, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openSet(t, o)
	to, err := s.Copy(from, 99)
	if err != nil {
		t.Fatal(err)
	}
	if to.Segment == from.Segment || to.Length != from.Length {
		t.Error(from, to)
	}
	if err := b.read(s, from); err != nil {
		t.Error(err)
	}
	b.meta.Birth = 99
	if err := b.read(s, to); err != nil {
		t.Error(err)
	}
	flip(t, s.segs[from.Segment].path, from.Offset+5000)
	if _, err := s.Copy(from, 100); !errors.Is(err, errCorrupt) {
		t.Errorf("a damaged plane was copied: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
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
	flip(t, s.segs[1].path, 20)
	uuid, seed, found, err := Identify(vfs.OS, o.Dir)
	if uuid != testUUID || seed != testSeed || !found || err != nil {
		t.Error(uuid, seed, found, err)
	}
	flip(t, s.segs[2].path, 20)
	if _, _, found, err := Identify(vfs.OS, o.Dir); found || !errors.Is(err, errCorrupt) {
		t.Error(found, err)
	}
}

func TestReadOnlyWritesNothing(t *testing.T) {
	o := options(t.TempDir())
	s := openSet(t, o)
	b := makeBlock(1, 1, 5000)
	loc := b.append(t, s, 1)
	s.Abandon()
	o.ReadOnly = true
	o.FS = &faults{FS: vfs.OS, fail: func(op, name string) error { return errors.New("a read-only set called " + op) }}
	s = openSet(t, o)
	if err := b.read(s, loc); err != nil {
		t.Error(err)
	}
	d, fp := testModel(1)
	r := b.build(t)
	_, err := s.Append(d, fp, r)
	_, cerr := s.Copy(loc, 2)
	_, rerr := s.Reclaim(t.Context())
	for _, err := range []error{err, cerr, rerr, s.Sync(), s.Seal(1), s.SealRecovered(1, loc.End())} {
		if !errors.Is(err, ErrReadOnly) {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestMissingFileIsOnlyDamage(t *testing.T) {
	o := options(t.TempDir())
	s := openSet(t, o)
	b := makeBlock(1, 1, 5000)
	loc := b.append(t, s, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openSet(t, o)
	if err := os.Remove(s.segs[loc.Segment].path); err != nil {
		t.Fatal(err)
	}
	for _, l := range []Loc{loc, {Segment: 77, Offset: 4096, Length: 4096}} {
		err := b.read(s, l)
		if !errors.Is(err, ErrMissing) || !errors.Is(err, errCorrupt) {
			t.Error(err)
		}
	}
	s.Destroy([]Loc{loc})
	if done, err := s.Reclaim(t.Context()); len(done) != 1 || err != nil {
		t.Error(done, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
