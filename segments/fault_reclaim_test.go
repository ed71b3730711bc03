package segments

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
)

// A Reclaim that fails at operation i, for each i, keeps in the queue what it did not finish, and finishes it next time.
func TestReclaimFailsAnywhere(t *testing.T) {
	for i := 0; ; i++ {
		s, f, _ := faultySet(t)
		var locs []Loc
		for k := range uint64(3) {
			locs = append(locs, makeBlock(int(k%2), k, 9000).append(t, s, int(k%2)))
		}
		live := makeBlock(1, 9, 9000)
		at := live.append(t, s, 1)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		s.Destroy(locs)
		n := 0
		f.set(func(op, _ string) error {
			n++
			if n == i+1 && op != "sync" { // a failed sync poisons: see above
				return fmt.Errorf("operation %d, %s", i, op)
			}
			return nil
		})
		done, err := s.Reclaim(t.Context())
		failed := n > i && err != nil
		if pending, _ := s.Pending(); pending+len(done) != len(locs) {
			t.Errorf("operation %d: %d done, %d pending", i, len(done), pending)
		}
		f.set(nil)
		again, err := s.Reclaim(t.Context())
		if err != nil || len(done)+len(again) != len(locs) {
			t.Errorf("operation %d: %d, then %d of %d: %v", i, len(done), len(again), len(locs), err)
		}
		for _, loc := range locs {
			if slices.Contains(done, loc) && slices.Contains(again, loc) {
				t.Errorf("operation %d: %v was destroyed twice", i, loc)
			}
			if err := s.Read(loc, func(*Record) error { return nil }); !errors.Is(err, ErrDestroyed) {
				t.Errorf("operation %d: %v", i, err)
			}
		}
		if err := live.read(s, at); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if !failed && n <= i {
			if i < 5 {
				t.Errorf("only %d operations", i)
			}
			return
		}
	}
}

// What is destroyed is gone from the file, byte for byte, and nothing else is.
func TestDestroyedBytesAreZero(t *testing.T) {
	s := newSet(t)
	var locs []Loc
	for i := range uint64(5) {
		locs = append(locs, makeBlock(1, i, 5000).append(t, s, 1))
	}
	damaged := locs[3] // neither zero nor a record: the location is believed
	path := s.segs[1].path
	flip(t, path, damaged.Offset)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bogus := []Loc{
		{Segment: 1, Offset: 0, Length: 4096}, {Segment: 1, Offset: 1 << 30, Length: 4096}, {Segment: 1, Offset: locs[4].Offset + 1, Length: 4096},
		{Segment: 1, Offset: locs[4].Offset, Length: -1},
		{Segment: 1, Offset: locs[0].Offset, Length: 1 << 20}, // a real record, and far more
	}
	s.Destroy(append(bogus, locs[1], damaged))
	if done, err := s.Reclaim(t.Context()); err != nil || len(done) != len(bogus)+2 {
		t.Fatal(done, err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(before)
	for _, loc := range []Loc{locs[0], locs[1], damaged} {
		clear(want[loc.Offset:loc.End()])
	}
	if i := firstDifference(after, want); i >= 0 {
		t.Errorf("byte %d is %#x, expected %#x", i, after[i], want[i])
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}
