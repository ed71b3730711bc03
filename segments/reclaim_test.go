package segments

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// A Reclaim that fails at operation i, for each i, keeps in the queue what it did not finish, and finishes it next time.
func TestReclaimFailsAnywhere(t *testing.T) {
	for i := 0; ; i++ {
		s, d, _ := onDisk(t)
		var locs []Loc
		for k := range uint64(3) {
			locs = append(locs, makeBlock(int(k%2), k, 9000).append(t, s, int(k%2)))
		}
		live := makeBlock(1, 9, 9000)
		at := live.append(t, s, 1)
		ok(t, s.Sync())
		s.Destroy(locs)
		n := 0
		d.fails(func(op crashfs.Op) error {
			if !op.Changes() {
				return nil
			}
			if n++; n == i+1 && op.Kind != "sync" { // a failed sync poisons: TestFailedSyncPoisons
				return errSick
			}
			return nil
		})
		done, _, err := s.Reclaim(t.Context(), nil)
		failed := n > i && err != nil
		if pending, _ := s.Pending(); pending+len(done) != len(locs) {
			t.Errorf("operation %d: %d done, %d pending", i, len(done), pending)
		}
		d.fails(nil)
		again, _, err := s.Reclaim(t.Context(), nil)
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
		ok(t, errors.Join(live.read(s, at), s.Close()))
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
	path := s.files.byID[1].path
	flip(t, path, damaged.Offset)
	want := must(os.ReadFile(path))(t)
	bogus := []Loc{
		{Segment: 1, Offset: 0, Length: 4096}, {Segment: 1, Offset: 1 << 30, Length: 4096}, {Segment: 1, Offset: locs[4].Offset + 1, Length: 4096},
		{Segment: 1, Offset: locs[4].Offset, Length: -1},
		{Segment: 1, Offset: locs[0].Offset, Length: 1 << 20}, // a real record, and far more
	}
	s.Destroy(append(bogus, locs[1], damaged))
	if done, _, err := s.Reclaim(t.Context(), nil); err != nil || len(done) != len(bogus)+2 {
		t.Fatal(done, err)
	}
	for _, loc := range []Loc{locs[0], locs[1], damaged} {
		clear(want[loc.Offset:loc.End()])
	}
	after := must(os.ReadFile(path))(t)
	for i := range max(len(after), len(want)) {
		if i >= len(after) || i >= len(want) || after[i] != want[i] {
			t.Fatalf("byte %d of %d is another, expected %d bytes", i, len(after), len(want))
		}
	}
	ok(t, s.Close())
}

// A Sync of somebody else between any two steps of a Reclaim does not take its fsync away: what Reclaim says is gone for good
// was synced after the last of it went.
func TestSyncBetweenStepsOfReclaim(t *testing.T) {
	for i := 0; ; i++ {
		s, d, _ := onDisk(t)
		var locs []Loc
		for k := range uint64(4) {
			locs = append(locs, makeBlock(1, k, 9000).append(t, s, 1))
		}
		locs = slices.Delete(locs, 2, 3) // two that lie together, and one apart
		ok(t, s.Sync())
		s.Destroy(locs)
		n := 0
		d.fails(func(op crashfs.Op) error {
			if !op.Changes() || op.Kind == "sync" { // of one file there is one at a time
				return nil
			}
			if n++; n != i+1 {
				return nil
			}
			synced := make(chan error) // by somebody else
			go func() { synced <- s.Sync() }()
			return <-synced
		})
		if done, _, err := s.Reclaim(t.Context(), nil); err != nil || len(done) != len(locs) {
			t.Fatal(done, err)
		}
		kinds := d.kinds()
		last := 0
		for k, kind := range kinds {
			if kind != "sync" {
				last = k
			}
		}
		if !slices.Contains(kinds[last:], "sync") {
			t.Errorf("with a Sync before step %d: nothing syncs the last: %v", i, kinds)
		}
		d.fails(nil)
		ok(t, s.Close())
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
	s, d, _ := onDisk(t)
	missing := []Loc{{Segment: 7, Offset: 4096, Length: 4096}}
	s.Destroy(missing)
	if done, _, err := s.Reclaim(t.Context(), nil); err != nil || len(done) != 1 {
		t.Fatal(done, err)
	}
	if !slices.Contains(d.kinds(), "syncdir") {
		t.Errorf("nothing syncs the folder: %v", d.kinds())
	}
	d.fails(failing(errSick, "syncdir"))
	s.Destroy(missing)
	if done, _, err := s.Reclaim(t.Context(), nil); err == nil || len(done) > 0 || s.Err() == nil {
		t.Errorf("%v, %v", done, err)
	}
	s.Abandon()
}

// A record of which a part was written, and which could not be taken back either, is destroyed later: a scan must not find it.
func TestHalfWrittenRecordIsDestroyedLater(t *testing.T) {
	s, d, _ := onDisk(t)
	all := stored{}
	all.add(t, s, 1, 1, 100)
	d.fails(failing(errSick, "write", "punch"))
	if _, err := makeBlock(1, 2, 8000).try(t, s, 1); err == nil {
		t.Fatal("it was written")
	}
	d.fails(nil)
	if done, _, err := s.Reclaim(t.Context(), nil); err != nil || len(done) != 1 {
		t.Errorf("%v, %v", done, err)
	}
	all.check(t, s)
	ok(t, s.Close())
}

// What many records' failures come to is one short error. The next Reclaim tries one record of each segment, and goes on only while that works.
func TestManyRecordsThatCannotBeDestroyed(t *testing.T) {
	s, d, _ := onDisk(t)
	var locs []Loc
	for i := range uint64(300) {
		locs = append(locs, makeBlock(1, i, 100).append(t, s, 1))
	}
	ok(t, s.Sync())
	segs := len(s.Segments())
	s.Destroy(locs)
	n := 0
	d.fails(func(op crashfs.Op) error {
		if op.Kind != "write" {
			return nil
		}
		if n++; n == 250 { // a cause of its own, of one record
			return vfs.ErrNotSynced
		}
		return errSick
	})
	done, _, err := s.Reclaim(t.Context(), nil)
	if len(done) > 0 || !errors.Is(err, errSick) || !errors.Is(err, vfs.ErrNotSynced) || !strings.HasSuffix(err.Error(), "; 300 failures in all") {
		t.Fatal(done, err)
	}
	if len(err.Error()) > 1000 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
	for _, kinds := range [][]string{{"write", "punch"}, {"write", "punch"}, {"punch"}} {
		d.fails(failing(errSick, kinds...))
		done, _, err = s.Reclaim(t.Context(), nil)
		most := segs * (3 - len(kinds)) // before a hole cannot be punched, a header is written
		if calls := len(d.kinds()); len(done) > 0 || !errors.Is(err, errSick) || calls > most || len(err.Error()) > 1000 {
			t.Errorf("tried again: %d calls for %d segments; %v, an error of %d bytes", calls, segs, done, len(err.Error()))
		}
	}
	d.fails(nil)
	if done, _, err = s.Reclaim(t.Context(), nil); err != nil || len(done) != len(locs) {
		t.Errorf("%d of %d: %v", len(done), len(locs), err)
	}
	ok(t, s.Close())
}

// Where an fsync fails after something else did, the error says that nothing is written any more.
func TestPoisonAfterOneThatCannotBeDestroyed(t *testing.T) {
	s, d, _ := onDisk(t)
	locs := []Loc{makeBlock(1, 1, 100).append(t, s, 1), makeBlock(2, 2, 100).append(t, s, 2)}
	ok(t, s.Sync())
	s.Destroy(locs)
	written := false
	d.fails(func(op crashfs.Op) error {
		first := op.Kind == "write" && !written
		written = written || first
		if first || op.Kind == "sync" {
			return errSick
		}
		return nil
	})
	if _, _, err := s.Reclaim(t.Context(), nil); !errors.Is(err, errSick) || !errors.Is(err, vfs.ErrPoisoned) {
		t.Error(err)
	}
	s.Abandon()
}

// One record that can never be destroyed keeps the others of its segment at most once more from going. What was never tried it keeps from nothing.
func TestOneRecordThatCannotBeDestroyed(t *testing.T) {
	s, d, _ := onDisk(t)
	var locs []Loc
	for i := range uint64(8) {
		locs = append(locs, makeBlock(1, i, 100).append(t, s, 1))
	}
	ok(t, s.Sync())
	fresh := locs[6:]
	s.Destroy(locs[:6])
	d.fails(failing(errSick, "write", "punch"))
	if done, _, err := s.Reclaim(t.Context(), nil); len(done) > 0 || err == nil {
		t.Fatal(done, err)
	}
	fails := func(n int) { // of the writes from now on
		d.fails(func(op crashfs.Op) error {
			if op.Kind != "write" {
				return nil
			}
			if n--; n == 0 {
				return errSick
			}
			return nil
		})
	}
	s.Destroy(fresh)
	fails(3) // that of the first record
	if done, _, err := s.Reclaim(t.Context(), nil); !slices.Equal(done, fresh) || !errors.Is(err, errSick) {
		t.Errorf("%v, %v", done, err)
	}
	fails(6) // again
	if done, _, err := s.Reclaim(t.Context(), nil); !slices.Equal(done, locs[1:6]) || !errors.Is(err, errSick) {
		t.Errorf("%v, %v", done, err)
	}
	d.fails(nil)
	if done := reclaim(t, s); !slices.Equal(done, locs[:1]) {
		t.Error(done)
	}
	ok(t, s.Close())
}

// Reclaim does not wait for who walks over a segment: it destroys what lies in others, and the rest is ripe when the walk is over.
func TestReclaimBesideAWalk(t *testing.T) {
	for _, unlinks := range []bool{false, true} {
		s, _, _ := onDisk(t)
		walked, other := makeBlock(1, 1, 9000).append(t, s, 1), makeBlock(2, 2, 9000).append(t, s, 2)
		ok(t, s.Sync())
		s.Destroy([]Loc{walked, other})
		if unlinks {
			s.Unlink(walked.Segment, true)
		}
		began := false
		ok(t, s.Verify(t.Context(), walked.Segment, func(Loc) bool { return false }, func(e *damage.Error) { t.Error(e) }, func(int64) {
			if began {
				return
			}
			began = true
			reclaimed := make(chan []Loc)
			go func() {
				done, more, err := s.Reclaim(t.Context(), nil)
				if more || err != nil {
					t.Error(more, err)
				}
				reclaimed <- done
			}()
			select {
			case done := <-reclaimed:
				if !slices.Equal(done, []Loc{other}) || s.Ripe() || !s.Has(walked.Segment) {
					t.Errorf("unlinks %t: %v, ripe %t", unlinks, done, s.Ripe())
				}
			case <-time.After(20 * time.Second):
				t.Error("Reclaim waits for the walk")
				go func() { <-reclaimed }()
			}
		}))
		if n, bytes := s.Pending(); !s.Ripe() || n != 1 || bytes != walked.Length {
			t.Errorf("unlinks %t: after the walk, ripe %t, %d records of %d bytes wait", unlinks, s.Ripe(), n, bytes)
		}
		if done := reclaim(t, s); !slices.Equal(done, []Loc{walked}) || s.Has(walked.Segment) == unlinks || s.Ripe() {
			t.Errorf("unlinks %t: %v", unlinks, done)
		}
		ok(t, s.Close())
	}
}
