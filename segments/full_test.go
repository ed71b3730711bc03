package segments

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// A full disk, in every operation in turn, in a new segment and in one that is half full: the error says so, what is stored
// stays readable, and when there is room again appending goes on.
func TestFullDisk(t *testing.T) {
	for _, op := range []string{"create", "truncate", "allocate", "write"} {
		for before := range uint64(4) {
			t.Run(fmt.Sprintf("%s after %d", op, before), func(t *testing.T) { testFullDisk(t, op, before) })
		}
	}
}

func testFullDisk(t *testing.T, op string, before uint64) {
	s, d, o := onDisk(t)
	live := stored{}
	for i := range before {
		live.add(t, s, 1, i, 15<<10)
	}
	d.fails(failing(vfs.ErrNoSpace, op))
	failed := 0
	for i := range uint64(5) {
		b := makeBlock(1, 10+i, 15<<10)
		switch loc, err := b.try(t, s, 1); {
		case err == nil:
			live[loc] = b
		case !errors.Is(err, vfs.ErrNoSpace):
			t.Error(err)
		default:
			failed++
		}
	}
	if failed == 0 {
		t.Error("the disk was never full")
	}
	ok(t, errors.Join(s.Sync(), s.SealAll(), s.Sync())) // sealing may fail; syncing must not, and must not poison
	d.fails(nil)
	for i := range uint64(5) {
		live.add(t, s, 1, 20+i, 15<<10)
	}
	live.check(t, s)
	ok(t, s.Close())
	s = openSet(t, o)
	live.check(t, s)
	for _, info := range s.Segments() {
		if !info.Sealed {
			t.Errorf("%s was not sealed when there was room again", info.Path)
		}
	}
	s.Abandon()
}

// Blocks are not reserved ahead where there is room only for what is needed.
func TestAllocateOnlyWhatFits(t *testing.T) {
	s, d, _ := onDisk(t)
	makeBlock(1, 1, 100).append(t, s, 1)
	large := true
	d.fails(func(op crashfs.Op) error {
		if op.Kind == "allocate" && large { // the whole step fails, the rest of it does not
			large = false
			return vfs.ErrNoSpace
		}
		return nil
	})
	if makeBlock(1, 2, 20<<10).append(t, s, 1); large {
		t.Error("no step failed")
	}
	ok(t, s.Close())
}

// What a full disk has given before it was full, as ext4 and xfs do, is given back, and the rest is counted.
func TestHalfAllocatedIsGivenBack(t *testing.T) {
	_, d, o := onDisk(t)
	o.SegmentBytes, o.AllocateStep = 8<<20, 64<<10
	s := openSet(t, o)
	makeBlock(1, 1, 100).append(t, s, 1)
	ok(t, s.Sync())
	before := s.Allocated()
	d.Before(func(op crashfs.Op) error {
		if op.Kind == "allocate" && op.Len > 64<<10 {
			return &crashfs.Late{Err: vfs.ErrNoSpace}
		}
		return nil
	})
	for i, size := range []int{1 << 20, 4 << 20, 12 << 20} {
		if _, err := makeBlock(1, uint64(i)+2, size).try(t, s, 1); !errors.Is(err, vfs.ErrNoSpace) {
			t.Fatal(err)
		}
		for _, info := range s.Segments() {
			if real := must(d.Stat(info.Path))(t); info.Allocated != real.Allocated {
				t.Errorf("%d bytes: %s: %d bytes are allocated, the set knows of %d", size, info.Path, real.Allocated, info.Allocated)
			}
		}
		if n := s.Allocated(); n > before+2*64<<10 {
			t.Errorf("%d bytes: %d bytes are allocated, %d before", size, n, before)
		}
	}
	d.Before(nil)
	ok(t, s.Close())
}

// What is refused on a full disk stays a hole, in whatever order it is refused: nobody writes there again, so that a walk that is under way
// comes upon nothing that is being written, and it occupies nothing, also when what lies behind it is written.
func TestRefusedRoomStaysAHole(t *testing.T) {
	for i, order := range [][]int{{0, 1, 2}, {0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		_, d, o := onDisk(t)
		o.SegmentBytes, o.AllocateStep = 1<<20, 16<<10
		s := openSet(t, o)
		all := stored{}
		all.add(t, s, 1, 1, 100)
		w := must(s.appender.writer(testModel(1)))(t)
		g := w.active
		const length = 32 << 10
		take := func() int64 {
			_, _, off, err := s.appender.reserve(w, g.head.model, length)
			ok(t, err)
			return off
		}
		most, written := g.head.end()+2*minAlignment, int64(0)
		if i == 0 { // beside one that has its blocks, and takes its time
			written = take()
			ok(t, g.allocate(g.f, written, written+length, o.AllocateStep))
			most += length
		}
		offs := []int64{take(), take(), take()}
		d.fails(func(op crashfs.Op) error {
			if op.Kind == "allocate" {
				return &crashfs.Late{Err: vfs.ErrNoSpace}
			}
			return nil
		})
		for _, i := range order {
			if err := g.allocate(g.f, offs[i], offs[i]+length, o.AllocateStep); !errors.Is(err, vfs.ErrNoSpace) {
				t.Fatalf("%v: %v", order, err)
			}
			g.endWrite(offs[i])
		}
		d.fails(nil)
		last := all.add(t, s, 1, 2, 100)
		if last.Offset < offs[2]+length {
			t.Errorf("%v: room that was refused at %v is given out at %d", order, offs, last.Offset)
		}
		if written > 0 {
			g.endWrite(written)
		}
		all.check(t, s)
		ok(t, s.SealAll())
		if n := must(d.Stat(g.path))(t).Allocated; n > most {
			t.Errorf("%v: %d bytes are allocated, expected at most %d", order, n, most)
		}
	}
}

// What is reserved ahead of the records of many models goes back, but for the one that is being written to, and all of them go on in the
// segments that they have.
func TestGiveBackAhead(t *testing.T) {
	_, d, o := onDisk(t)
	o.SegmentBytes, o.AllocateStep = 4<<20, 1<<20
	s := openSet(t, o)
	all := stored{}
	const models = 8
	for n := range models {
		all.add(t, s, n, uint64(n), 3000)
	}
	w, err := s.appender.writer(testModel(0))
	ok(t, err)
	_, _, off, err := s.appender.reserve(w, w.active.head.model, minAlignment)
	ok(t, err)
	given := must(s.GiveBackAhead())(t)
	if given < (models-1)*o.AllocateStep*9/10 || given > (models-1)*o.AllocateStep {
		t.Errorf("%d bytes came back of %d segments", given, models-1)
	}
	w.active.endWrite(off)
	w.active.unpinFile()
	given += must(s.GiveBackAhead())(t)
	for _, info := range s.Segments() {
		real := must(d.Stat(info.Path))(t)
		if real.Allocated != info.Allocated || real.Allocated > info.End || real.Size != o.SegmentBytes {
			t.Errorf("%+v of %+v", real, info)
		}
	}
	if more := must(s.GiveBackAhead())(t); given > models*o.AllocateStep || more != 0 {
		t.Errorf("%d bytes came back of %d segments, and then %d", given, models, more)
	}
	for n := range models {
		all.add(t, s, n, uint64(models+n), 3000, 20<<10)
	}
	if n := len(s.Segments()); n != models {
		t.Errorf("there are %d segments of %d models", n, models)
	}
	all.check(t, s)
	ok(t, s.Close())
	s = openSet(t, o)
	all.check(t, s)
	s.Abandon()
}

// Records that are written while blocks are given back keep theirs.
func TestGiveBackAheadBesideAppends(t *testing.T) {
	o := options(t.TempDir())
	o.SegmentBytes, o.AllocateStep = 8<<20, 256<<10
	s := openSet(t, o)
	const models, records = 3, 60
	found := make([]stored, models)
	var writers sync.WaitGroup
	for n := range models {
		found[n] = stored{}
		writers.Go(func() {
			for i := range uint64(records) {
				found[n].add(t, s, n, uint64(n)<<32|i, 9000)
			}
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); writers.Wait() }()
	for given := int64(0); ; {
		more, err := s.GiveBackAhead()
		ok(t, err)
		given += more
		select {
		case <-done:
			if given == 0 && !s.Solid() {
				t.Error("nothing came back")
			}
			for _, more := range found[1:] {
				maps.Copy(found[0], more)
			}
			found[0].check(t, s)
			ok(t, s.Close())
			return
		default:
		}
	}
}
