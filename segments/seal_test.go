package segments

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

func TestSealRecovered(t *testing.T) {
	o := options(t.TempDir())
	s := openSet(t, o)
	all := stored{}
	la, lb := all.add(t, s, 1, 1, 5000), all.add(t, s, 1, 2, 5000)
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
		ok(t, s.SealRecovered(la.Segment, end))
	}
	info := s.Segments()[0]
	if !info.Sealed || info.End != end || info.Size != end {
		t.Fatalf("%+v", info)
	}
	all.check(t, s)
	ok(t, s.Close())
}

// A file whose header was never written holds nothing; one in which nothing was written behind it keeps it. One whose header is damaged, or
// that somebody cut, stays as it is.
func TestSealRecoveredOfDamagedFiles(t *testing.T) {
	o := options(t.TempDir())
	s := openSet(t, o)
	unborn := makeBlock(0, 1, 5000).append(t, s, 0)
	rotten := makeBlock(1, 1, 5000).append(t, s, 1)
	short := makeBlock(2, 1, 5000).append(t, s, 2)
	empty := makeBlock(3, 1, 5000).append(t, s, 3)
	path := func(loc Loc) string { return s.files.byID[loc.Segment].path }
	s.Abandon()
	edit(t, path(empty), func(b []byte) []byte { clear(b[empty.Offset:]); return b })
	ok(t, errors.Join(os.Truncate(path(unborn), 0), os.Truncate(path(short), short.Offset+4096)))
	flip(t, path(rotten), 100)
	before := map[Loc][]byte{rotten: must(os.ReadFile(path(rotten)))(t), short: must(os.ReadFile(path(short)))(t)}
	s = openSet(t, o)
	for loc, end := range map[Loc]int64{unborn: 0, empty: 0, rotten: rotten.End(), short: short.End()} { // which the index names
		ok(t, s.SealRecovered(loc.Segment, end))
	}
	if _, err := os.Stat(filepath.Join(o.Dir, segmentName(unborn.Segment))); !errors.Is(err, os.ErrNotExist) {
		t.Error("a file without a header is still there")
	}
	for _, info := range s.Segments() {
		if info.ID == empty.Segment && (info.Err != nil || info.Size != empty.Offset) {
			t.Errorf("%+v, its header ends at %d", info, empty.Offset)
		}
	}
	for loc, b := range before {
		if now := must(os.ReadFile(path(loc)))(t); !bytes.Equal(now, b) {
			t.Errorf("segment %d: %d bytes, %d before", loc.Segment, len(now), len(b))
		}
		if bad, _ := verify(t, s, loc.Segment, nil); len(bad) == 0 {
			t.Errorf("segment %d became sound by sealing", loc.Segment)
		}
	}
	s.Close()
}

// What was torn behind the last record is gone when the next Sync is done: no power cut brings it back. That goes also where a mapped
// file cannot be cut.
func TestSealRecoveredIsDurable(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		s, d, o := onDisk(t)
		loc := makeBlock(1, 1, 5000).append(t, s, 1)
		ok(t, s.Sync())
		f := must(d.Open(s.files.byID[loc.Segment].path, false))(t)
		must(f.WriteAt([]byte("torn"), loc.End()+5000))(t)
		ok(t, errors.Join(f.Sync(), f.Close()))
		s.Abandon()
		s = openSet(t, o)
		if mapped {
			d.fails(failing(errors.New("a user-mapped section is open"), "truncate"))
		}
		ok(t, errors.Join(s.SealRecovered(loc.Segment, loc.End()), s.Sync()))
		for seed := range uint64(8) {
			image := must(d.PowerCut(rand.New(rand.NewPCG(seed, 1)), diskDir))(t)
			o.FS = image
			cut := openSet(t, o)
			info := cut.Segments()[0]
			if info.Sealed == mapped || !mapped && info.Size != loc.End() {
				t.Errorf("mapped %t: %+v", mapped, info)
			}
			sound(t, cut, loc.Segment)
			cut.Abandon()
		}
		s.Abandon()
	}
}

// Before a segment holds a record its header is durable, and its name: no power cut takes them.
func TestHeaderIsDurableBeforeTheFirstRecord(t *testing.T) {
	s, d, o := onDisk(t)
	loc := makeBlock(1, 1, 5000).append(t, s, 1)
	for seed := range uint64(16) {
		o.FS = must(d.PowerCut(rand.New(rand.NewPCG(seed, 1)), diskDir))(t)
		cut := openSet(t, o)
		if info := cut.Segments(); len(info) != 1 || info[0].ID != loc.Segment || info[0].Err != nil {
			t.Errorf("after a power cut: %+v", info)
		}
		cut.Abandon()
	}
	s.Abandon()
}

// A file that cannot be cut while it is mapped is not sealed, and the log goes on saying so. Closing cuts it.
func TestUncutSegmentIsCutOnClose(t *testing.T) {
	s, d, o := onDisk(t)
	all := stored{}
	loc := all.add(t, s, 1, 1, 5000)
	g := s.files.byID[loc.Segment]
	d.fails(func(op crashfs.Op) error {
		if g.mu.TryLock() {
			defer g.mu.Unlock()
		}
		if op.Kind == "truncate" && g.m != nil {
			return errors.New("a user-mapped section is open")
		}
		return nil
	})
	ok(t, s.Read(loc, func(*Record) error { return s.SealAll() }))
	if info := s.Segments()[0]; info.Sealed || info.Size != o.SegmentBytes || s.OpenEnds()[loc.Segment] != loc.End() {
		t.Errorf("%+v, open %v", info, s.OpenEnds())
	}
	all.check(t, s)
	ok(t, s.Close())
	d.fails(nil)
	s = openSet(t, o)
	if info := s.Segments()[0]; !info.Sealed || info.Size != loc.End() {
		t.Errorf("%+v", info)
	}
	all.check(t, s)
	s.Abandon()
}

// A segment that has no room for another record is seen to be sealed, however well its records fill it, and what was reserved for more
// of them goes back.
func TestFullSegmentsAreShorterThanPlanned(t *testing.T) {
	for _, size := range []int{3000, 60<<10 - 700, 200 << 10} { // many to a segment; one that fills it; one that is larger
		_, d, o := onDisk(t)
		o.AllocateStep = 1 << 20
		s := openSet(t, o)
		all := stored{}
		ends := map[uint64]int64{}
		for seed := range uint64(18) {
			loc := all.add(t, s, 1, seed, size)
			ends[loc.Segment] = loc.End()
		}
		ok(t, s.SealAll())
		for _, info := range s.Segments() {
			if real := must(d.Stat(info.Path))(t); real.Allocated != info.Allocated || info.Allocated > info.End {
				t.Errorf("%d bytes a record: %d bytes are allocated, %d counted, the records end at %d", size, real.Allocated, info.Allocated, info.End)
			}
		}
		ok(t, s.Close())
		s = openSet(t, o)
		for _, info := range s.Segments() {
			if !info.Sealed || info.End != ends[info.ID] || info.Size != info.End {
				t.Errorf("%d bytes a record: %+v, the records end at %d", size, info, ends[info.ID])
			}
		}
		all.check(t, s)
		s.Abandon()
	}
}

// A segment is not sealed while a record is on its way into it, whose reservation would make the file longer again.
func TestSealBesideAnAppend(t *testing.T) {
	s, d, _ := onDisk(t)
	all := stored{}
	first := all.add(t, s, 1, 1, 100)
	sealing := true
	d.fails(func(op crashfs.Op) error {
		if op.Kind == "allocate" && sealing {
			sealing = false
			sealed := make(chan error)
			go func() { sealed <- s.SealAll() }()
			return <-sealed
		}
		return nil
	})
	last := all.add(t, s, 1, 2, 20<<10)
	ok(t, s.Sync())
	real := must(d.Stat(s.files.byID[first.Segment].path))(t)
	if info := s.Segments()[0]; sealing || !info.Sealed || real.Size != last.End() || real.Allocated > last.End() {
		t.Errorf("asked to seal %t; %+v of %+v, the records end at %d", !sealing, real, info, last.End())
	}
	all.check(t, s)
	ok(t, s.Close())
}

// tmpfs is a folder in memory.
func tmpfs(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "dormouse")
	if err != nil {
		t.Skip("SKIPPED: needs a tmpfs at /dev/shm:", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// What destroying records gave back is not taken again by looking a segment over, on a tmpfs either.
func TestWalksFillNoHoles(t *testing.T) {
	o := options(tmpfs(t))
	s := openSet(t, o)
	var locs []Loc
	for i := range uint64(7) {
		locs = append(locs, makeBlock(0, i, 6000, 100).append(t, s, 0))
	}
	alive := locs[3]
	s.Destroy(append(locs[:3:3], locs[4:]...))
	reclaim(t, s)
	for _, sealed := range []bool{false, true} {
		if sealed {
			ok(t, errors.Join(s.SealAll(), s.Close()))
			s = openSet(t, o)
		}
		path := filepath.Join(o.Dir, segmentName(alive.Segment))
		before, _ := vfs.OS.Stat(path)
		n := 0
		bad, remains := verify(t, s, alive.Segment, func(l Loc) bool { n++; return l == alive })
		found, _, rubbish := recordsOf(t, s, alive.Segment)
		if n == 0 || len(bad)+len(remains)+len(rubbish) > 0 || !slices.Equal(found, []Loc{alive}) {
			t.Errorf("sealed %t: %d asked for, %v, %v, %v, found %v", sealed, n, bad, remains, rubbish, found)
		}
		if after, _ := vfs.OS.Stat(path); after.Allocated != before.Allocated {
			t.Errorf("sealed %t: %d bytes are occupied, %d before the walks", sealed, after.Allocated, before.Allocated)
		}
	}
	ok(t, s.Close())
}
