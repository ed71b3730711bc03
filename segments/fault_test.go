package segments

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

func faultySet(t *testing.T) (*Set, *faults, Options) {
	f := &faults{FS: vfs.OS}
	o := options(t.TempDir())
	o.FS = f
	return openSet(t, o), f, o
}

// try appends and says what came of it.
func try(s *Set, b block, n int) (Loc, error) {
	d, fp := testModel(n)
	r := NewBuilder(b.meta, len(b.planes))
	defer r.Release()
	for i, p := range b.planes {
		if err := r.AddPlane(TensorEntry{Tensor: uint16(i)}, func(dst []byte, e *TensorEntry) ([]byte, error) { e.CRC = crc32c(p); return append(dst, p...), nil }); err != nil {
			return Loc{}, err
		}
	}
	return s.Append(d, fp, r)
}

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
	s, f, o := faultySet(t)
	live := map[Loc]block{}
	add := func(seed uint64) error {
		b := makeBlock(1, seed, 15<<10)
		loc, err := try(s, b, 1)
		if err == nil {
			live[loc] = b
		}
		return err
	}
	for i := range before {
		if err := add(i); err != nil {
			t.Fatal(err)
		}
	}
	f.set(func(what, _ string) error {
		if what == op {
			return fmt.Errorf("test: %w", vfs.ErrNoSpace)
		}
		return nil
	})
	failed := 0
	for i := range uint64(5) {
		if err := add(10 + i); err != nil {
			failed++
			if !errors.Is(err, vfs.ErrNoSpace) {
				t.Error(err)
			}
		}
	}
	if failed == 0 {
		t.Error("the disk was never full")
	}
	// Sealing may fail, syncing must not, and must not poison.
	if err := errors.Join(s.Sync(), s.SealAll(), s.Sync()); err != nil {
		t.Error(err)
	}
	f.set(nil)
	for i := range uint64(5) {
		if err := add(20 + i); err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		for loc, b := range live {
			if err := b.read(s, loc); err != nil {
				t.Error(loc, err)
			}
		}
		found := 0
		for _, info := range s.Segments() {
			_, err := s.Scan(t.Context(), info.ID, 0, func(loc Loc, _ *Record) error {
				if _, ok := live[loc]; !ok {
					t.Errorf("a record that was never acknowledged is at %v", loc)
				}
				found++
				return nil
			}, func(e *damage.Error) { t.Error(e) })
			if err != nil {
				t.Error(err)
			}
			if bad, remains := verify(t, s, info.ID, nil); len(bad)+len(remains) > 0 {
				t.Error(bad, remains)
			}
		}
		if found != len(live) {
			t.Errorf("%d records, expected %d", found, len(live))
		}
	}
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openSet(t, o)
	check()
	for _, info := range s.Segments() {
		if !info.Sealed {
			t.Errorf("%s was not sealed when there was room again", info.Path)
		}
	}
	s.Abandon()
}

// Where a mapped file cannot be cut, it is cut when it is closed.
func TestUncutSegmentIsCutOnClose(t *testing.T) {
	s, f, o := faultySet(t)
	b := makeBlock(1, 1, 5000)
	loc := b.append(t, s, 1)
	g := s.segs[loc.Segment]
	f.set(func(op, _ string) error {
		if g.mu.TryLock() {
			defer g.mu.Unlock()
		}
		if op == "truncate" && g.m != nil {
			return errors.New("a user-mapped section is open")
		}
		return nil
	})
	err := s.Read(loc, func(*Record) error { return s.Seal(loc.Segment) })
	if err != nil {
		t.Fatal(err)
	}
	if info := s.Segments()[0]; !info.Sealed || info.Size != alignUp(o.SegmentBytes, 4096) {
		t.Errorf("%+v", info)
	}
	if bad, remains := verify(t, s, 1, nil); len(bad)+len(remains) > 0 {
		t.Error(bad, remains)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f.set(nil)
	s = openSet(t, o)
	if info := s.Segments()[0]; !info.Sealed || info.Size == o.SegmentBytes {
		t.Errorf("%+v", info)
	}
	if err := b.read(s, loc); err != nil {
		t.Error(err)
	}
	s.Abandon()
}

// Blocks are not reserved ahead where there is room only for what is needed.
func TestAllocateOnlyWhatFits(t *testing.T) {
	s, f, _ := faultySet(t)
	makeBlock(1, 1, 100).append(t, s, 1)
	large := true
	f.set(func(op, _ string) error {
		if op == "allocate" && large { // the whole step fails, the rest of it does not
			large = false
			return vfs.ErrNoSpace
		}
		return nil
	})
	if _, err := try(s, makeBlock(1, 2, 20<<10), 1); err != nil || large {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// After a failed fsync nothing is written any more, wherever it failed; reads go on; another Set recovers.
func TestFailedSyncPoisons(t *testing.T) {
	broken := errors.New("the disk is broken")
	for _, op := range []string{"sync", "syncdir"} {
		for _, by := range []string{"Sync", "Reclaim", "Seal", "Close"} {
			t.Run(op+" by "+by, func(t *testing.T) {
				s, f, o := faultySet(t)
				b := makeBlock(1, 1, 5000)
				loc := b.append(t, s, 1)
				dead := makeBlock(1, 2, 5000).append(t, s, 1)
				s.Destroy([]Loc{dead})
				if by == "Reclaim" && op == "syncdir" {
					s.Unlink(makeBlock(2, 3, 100).append(t, s, 2).Segment)
				}
				f.set(func(what, _ string) error {
					if what == op {
						return broken
					}
					return nil
				})
				var err error
				switch by {
				case "Sync":
					err = s.Sync()
				case "Reclaim":
					var done []Loc
					if done, err = s.Reclaim(t.Context()); len(done) > 0 {
						t.Error("a record was reported gone without a sync")
					}
				case "Seal":
					err = s.Seal(loc.Segment)
				case "Close":
					if err := s.Close(); !errors.Is(err, broken) {
						t.Error(err)
					}
					return
				}
				if !errors.Is(err, broken) || !errors.Is(s.Err(), broken) {
					t.Fatalf("%v, %v", err, s.Err())
				}
				f.set(nil)
				_, aerr := try(s, b, 1)
				_, rerr := s.Reclaim(t.Context())
				for _, err := range []error{aerr, rerr, s.Sync(), s.Seal(loc.Segment)} {
					if !errors.Is(err, broken) {
						t.Errorf("after a failed fsync: %v", err)
					}
				}
				if len(f.calls) > 0 {
					t.Errorf("after a failed fsync: %v", f.calls)
				}
				if err := b.read(s, loc); err != nil {
					t.Error(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				s = openSet(t, o)
				if err := b.read(s, loc); err != nil {
					t.Error(err)
				}
				b.append(t, s, 1)
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// The order on which recovery rests: header zeroed, then punched, then synced; footer synced, then the file is cut.
func TestOrderOfWrites(t *testing.T) {
	s, f, _ := faultySet(t)
	loc := makeBlock(1, 1, 9000).append(t, s, 1)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	ops := func() string {
		var out []string
		for _, c := range f.calls {
			op, _, _ := strings.Cut(c, " ")
			out = append(out, op)
		}
		return strings.Join(out, " ")
	}
	f.set(nil)
	s.Destroy([]Loc{loc})
	if _, err := s.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := ops(); got != "write punch sync" {
		t.Error("Reclaim:", got)
	}
	f.set(nil)
	if err := s.Seal(loc.Segment); err != nil {
		t.Fatal(err)
	}
	if got := ops(); got != "write sync truncate" {
		t.Error("Seal:", got)
	}
	f.set(nil)
	s.Unlink(loc.Segment)
	if _, err := s.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := ops(); got != "remove syncdir" {
		t.Error("Unlink:", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A real full file system, if there is a small one to fill.
func TestFillAFileSystem(t *testing.T) {
	dir := os.Getenv("DORMOUSE_SMALL_FS")
	if dir == "" {
		t.Skip("SKIPPED: set DORMOUSE_SMALL_FS to a folder on a file system of some MiB, which this test fills")
	}
	o := options(dir)
	o.SegmentBytes, o.AllocateStep = 4<<20, 1<<20
	s := openSet(t, o)
	live := map[Loc]block{}
	var full error
	for i := uint64(0); full == nil && i < 1<<16; i++ {
		b := makeBlock(1, i, 200<<10)
		loc, err := try(s, b, 1)
		if err == nil {
			live[loc] = b
		}
		full = err
	}
	if !errors.Is(full, vfs.ErrNoSpace) {
		t.Fatal(full)
	}
	for loc, b := range live {
		if err := b.read(s, loc); err != nil {
			t.Error(err)
		}
	}
	for loc := range live { // destroying works on a full disk, and makes room
		s.Destroy([]Loc{loc})
		delete(live, loc)
		if len(live) < 4 {
			break
		}
	}
	if _, err := s.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := try(s, makeBlock(1, 1, 200<<10), 1); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, info := range s.Segments() {
		os.Remove(info.Path)
	}
}

// A record of which a part was written, and which could not be taken back either, is destroyed later: a scan must not find it.
func TestHalfWrittenRecordIsDestroyedLater(t *testing.T) {
	s, f, _ := faultySet(t)
	first := makeBlock(1, 1, 100).append(t, s, 1)
	f.set(func(op, _ string) error {
		if op == "write" || op == "punch" {
			return errors.New("the disk is sick")
		}
		return nil
	})
	if _, err := try(s, makeBlock(1, 2, 8000), 1); err == nil {
		t.Fatal("it was written")
	}
	f.set(nil)
	if done, err := s.Reclaim(t.Context()); err != nil || len(done) != 1 {
		t.Errorf("%v, %v", done, err)
	}
	found := 0
	if _, err := s.Scan(t.Context(), first.Segment, 0, func(Loc, *Record) error { found++; return nil }, func(e *damage.Error) { t.Error(e) }); err != nil || found != 1 {
		t.Errorf("%d records, %v", found, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
