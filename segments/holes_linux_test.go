package segments

import (
	"context"
	"os"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"golang.org/x/sys/unix"
)

// What destroying records gave back is not taken again by looking a segment over, on a tmpfs either.
func TestWalksFillNoHoles(t *testing.T) {
	var st unix.Statfs_t
	if unix.Statfs("/dev/shm", &st) != nil || st.Type != unix.TMPFS_MAGIC {
		t.Skip("SKIPPED: there is no tmpfs at /dev/shm")
	}
	dir, err := os.MkdirTemp("/dev/shm", "holes")
	if err != nil {
		t.Skip("SKIPPED: /dev/shm cannot be written: ", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := openSet(t, options(dir))
	var locs []Loc
	for i := range uint64(7) {
		locs = append(locs, makeBlock(0, i, 6000, 100).append(t, s, 0))
	}
	alive := locs[3]
	s.Destroy(append(locs[:3:3], locs[4:]...))
	if _, err := s.Reclaim(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, sealed := range []bool{false, true} {
		if sealed {
			if err := s.Seal(alive.Segment); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openSet(t, options(dir))
		}
		path := dir + "/" + segmentName(alive.Segment)
		before, _ := s.o.FS.Stat(path)
		report := func(e *damage.Error) { t.Error(e) }
		n := 0
		live := func(l Loc) bool { n++; return l == alive }
		if err := s.Verify(context.Background(), alive.Segment, live, report, nil); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			t.Error("the live record was not met")
		}
		if _, err := s.Scan(context.Background(), alive.Segment, 0, func(l Loc, _ *Record) error {
			if l != alive {
				t.Errorf("a record at %v", l)
			}
			return nil
		}, report); err != nil {
			t.Fatal(err)
		}
		if after, _ := s.o.FS.Stat(path); after.Allocated != before.Allocated {
			t.Errorf("sealed %t: %d bytes are occupied, %d before the walks", sealed, after.Allocated, before.Allocated)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
