package segments

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// After a failed fsync nothing is written any more, wherever it failed; reads go on; another Set recovers.
func TestFailedSyncPoisons(t *testing.T) {
	for _, op := range []string{"sync", "syncdir"} {
		for _, by := range []string{"Append", "Sync", "Reclaim", "SealAll", "Close"} {
			t.Run(op+" by "+by, func(t *testing.T) {
				s, d, o := onDisk(t)
				b := makeBlock(1, 1, 5000)
				loc := b.append(t, s, 1)
				s.Destroy([]Loc{makeBlock(1, 2, 5000).append(t, s, 1)})
				if by == "Reclaim" && op == "syncdir" {
					s.Unlink(makeBlock(2, 3, 100).append(t, s, 2).Segment, false)
				} else if op == "syncdir" { // the next process does not know whether names were synced
					s.Abandon()
					s = openSet(t, o)
				}
				d.fails(failing(errSick, op))
				var err error
				switch by {
				case "Append": // begins a segment
					_, err = makeBlock(2, 3, 100).try(t, s, 2)
				case "Sync":
					err = s.Sync()
				case "Reclaim":
					var done []Loc
					if done, _, err = s.Reclaim(t.Context(), nil); len(done) > 0 {
						t.Error("a record was reported gone without a sync")
					}
				case "SealAll":
					err = s.SealAll()
				case "Close":
					if err := s.Close(); !errors.Is(err, errSick) {
						t.Error(err)
					}
					return
				}
				if !errors.Is(err, errSick) || !errors.Is(s.Err(), errSick) {
					t.Fatalf("%v, %v", err, s.Err())
				}
				d.fails(nil)
				_, aerr := b.try(t, s, 1)
				_, _, rerr := s.Reclaim(t.Context(), nil)
				for _, err := range []error{aerr, rerr, s.Sync(), s.SealAll()} {
					if !errors.Is(err, errSick) {
						t.Errorf("after a failed fsync: %v", err)
					}
				}
				if len(d.calls) > 0 {
					t.Errorf("after a failed fsync: %v", d.calls)
				}
				ok(t, errors.Join(b.read(s, loc), s.Close()))
				s = openSet(t, o)
				ok(t, b.read(s, loc))
				b.append(t, s, 1)
				ok(t, s.Close())
			})
		}
	}
}

// Nobody hears of a failed fsync before the mark is made by which the next process knows of it.
func TestMarkComesBeforeError(t *testing.T) {
	_, d, o := onDisk(t)
	var s *Set
	marked := 0
	o.Poisoned = func() {
		marked++
		if s.files.poison.Err() != nil {
			t.Error("the error is known already")
		}
	}
	s = openSet(t, o)
	makeBlock(1, 1, 100).append(t, s, 1)
	d.fails(failing(errSick, "sync"))
	if err := s.Sync(); err == nil || s.Err() == nil || marked != 1 {
		t.Errorf("%v, marked %d times", err, marked)
	}
	s.Abandon()
}

// The order on which recovery rests: header zeroed, then punched, then synced; the file is cut, then synced.
func TestOrderOfWrites(t *testing.T) {
	s, d, _ := onDisk(t)
	loc := makeBlock(1, 1, 9000).append(t, s, 1)
	ok(t, s.Sync())
	reclaim := func() error { _, _, err := s.Reclaim(t.Context(), nil); return err }
	for _, step := range []struct {
		prepare func()
		do      func() error
		want    string
	}{
		{func() { s.Destroy([]Loc{loc}) }, reclaim, "[write punch sync]"},
		{func() {}, s.SealAll, "[truncate sync]"},
		{func() { s.Unlink(loc.Segment, false) }, reclaim, "[remove syncdir]"},
	} {
		d.fails(nil)
		step.prepare()
		ok(t, step.do())
		if got := fmt.Sprint(d.kinds()); got != step.want {
			t.Errorf("%s, expected %s", got, step.want)
		}
	}
	ok(t, s.Close())
}

// A Sync covers every append before it, even where another goroutine has marked the file and was stopped before it could tell
// the set; so does one that cuts a file.
func TestSyncBesideOneThatMarksTheFile(t *testing.T) {
	s, d, _ := onDisk(t)
	loc := makeBlock(1, 1, 100).append(t, s, 1)
	ok(t, s.Sync())
	g := must(s.files.segment(loc.Segment))(t)
	synced := func(do func() error, after string) {
		t.Helper()
		ok(t, do())
		if kinds := d.kinds(); slices.Index(kinds, "sync") <= slices.Index(kinds, after) {
			t.Errorf("it is not synced: %v", kinds)
		}
	}
	other := func() { // goes as far as that
		g.mu.Lock()
		g.dirty = true
		g.mu.Unlock()
		d.fails(nil)
	}
	other()
	makeBlock(1, 2, 100).append(t, s, 1)
	synced(s.Sync, "")
	other()
	synced(s.SealAll, "truncate")
}

// That a segment was cut is made durable by the next Sync that gets to its end, should the first one fail on the way.
func TestSyncThatFailsSyncsNextTime(t *testing.T) {
	s, d, _ := onDisk(t)
	loc := makeBlock(1, 1, 5000).append(t, s, 1)
	left := &segment{files: &s.files, id: 99, path: diskDir + "/left", left: true} // cannot be opened: no fsync has failed
	s.files.noteDirty(left)
	d.fails(func(op crashfs.Op) error {
		if op.Kind == "open" && op.Name == "left" {
			return errSick
		}
		return nil
	})
	if err := s.SealAll(); !errors.Is(err, errSick) {
		t.Fatal(err)
	}
	d.fails(nil)
	ok(t, s.Sync())
	for seed := range uint64(8) {
		image := must(d.PowerCut(rand.New(rand.NewPCG(seed, 1)), diskDir))(t)
		if info := must(image.Stat(s.Segments()[0].Path))(t); info.Size != loc.End() {
			t.Errorf("a power cut gives the file %d bytes, its records end at %d", info.Size, loc.End())
		}
	}
	ok(t, s.Close())
}

// A folder that cannot be opened to be synced poisons nothing, because no fsync has failed. The next Sync syncs it, and so does the next
// Reclaim, which calls nothing destroyed before.
func TestFolderCannotBeOpened(t *testing.T) {
	s, d, o := onDisk(t)
	unopened := failing(fmt.Errorf("%w: too many open files", vfs.ErrNotSynced), "syncdir")
	synced := func() (n int) {
		for _, kind := range d.kinds() {
			if kind == "syncdir" {
				n++
			}
		}
		return n
	}
	d.fails(unopened)
	if _, err := makeBlock(1, 1, 9000).try(t, s, 1); !errors.Is(err, vfs.ErrNotSynced) || s.Err() != nil || len(must(d.List(diskDir))(t)) > 0 {
		t.Fatalf("a segment is begun: %v, poisoned: %v", err, s.Err())
	}
	d.fails(nil)
	loc := makeBlock(1, 1, 9000).append(t, s, 1)
	if n := synced(); n != 1 {
		t.Fatalf("a segment is begun: the folder was synced %d times", n)
	}
	s.Abandon()
	s = openSet(t, o) // which does not know whether names were synced
	d.fails(unopened)
	for range 2 {
		if err := s.Sync(); !errors.Is(err, vfs.ErrNotSynced) || s.Err() != nil {
			t.Fatalf("sync: %v, poisoned: %v", err, s.Err())
		}
	}
	d.fails(nil)
	if err := s.Sync(); err != nil || synced() != 1 {
		t.Fatalf("sync: %v, the folder was synced %d times", err, synced())
	}
	s.Destroy([]Loc{loc})
	s.Unlink(loc.Segment, false)
	d.fails(unopened)
	for range 2 {
		done, _, err := s.Reclaim(t.Context(), nil)
		if pending, _ := s.Pending(); !errors.Is(err, vfs.ErrNotSynced) || len(done) > 0 || pending != 1 || s.PendingUnlinks() != 1 || s.Err() != nil {
			t.Fatalf("reclaim: %v, %d done, %d pending, poisoned: %v", err, len(done), pending, s.Err())
		}
	}
	d.fails(nil)
	done, _, err := s.Reclaim(t.Context(), nil)
	if pending, _ := s.Pending(); err != nil || len(done) != 1 || pending+s.PendingUnlinks() != 0 || synced() != 1 {
		t.Fatalf("reclaim: %v, %d done, %d pending, the folder was synced %d times", err, len(done), pending, synced())
	}
	makeBlock(1, 2, 9000).append(t, s, 1)
	ok(t, s.Close())
}

// While one goroutine syncs the folder no other one does: the system tells of a failure once, and who comes later must find it
// known.
func TestFolderIsSyncedByOneAtATime(t *testing.T) {
	s, d, _ := onDisk(t)
	n := 0
	d.fails(func(op crashfs.Op) error {
		if op.Kind == "syncdir" {
			if n++; s.files.folder.TryLock() {
				s.files.folder.Unlock()
				t.Error("another one may sync the folder")
			}
		}
		return nil
	})
	makeBlock(1, 1, 100).append(t, s, 1)
	s.Unlink(1, false)
	reclaim(t, s)
	if n != 2 {
		t.Errorf("the folder was synced %d times", n)
	}
	d.fails(failing(errSick, "syncdir"))
	if err := s.Sync(); err == nil || s.Err() == nil { // Reclaim removed a name
		t.Error(err)
	}
	s.Abandon()
}

// A full segment that somebody walks over, or destroys in, keeps nobody from syncing: a later Sync cuts it.
func TestSyncBesideAWalk(t *testing.T) {
	s, _, _ := onDisk(t)
	loc := makeBlock(1, 1, 9000).append(t, s, 1)
	for _, beside := range []bool{true, false} {
		sealed := make(chan error, 1)
		if beside {
			must(s.Scan(t.Context(), loc.Segment, 0, func(Loc, *Record) error {
				go func() { sealed <- s.SealAll() }()
				return <-sealed
			}, nil))(t)
		} else {
			ok(t, s.Sync())
		}
		if got := s.Segments()[0].Sealed; got == beside {
			t.Errorf("beside a walk %t: cut %t", beside, got)
		}
	}
}

// Segments of several models are synced at the same time, and the error of one is the error of all.
func TestSegmentsAreSyncedAtOnce(t *testing.T) {
	s, d, _ := onDisk(t)
	const models = 4
	for n := 1; n <= models; n++ {
		makeBlock(n, uint64(n), 5000).append(t, s, n)
	}
	var begun sync.WaitGroup
	begun.Add(models)
	all := make(chan struct{})
	go func() { begun.Wait(); close(all) }()
	var syncs atomic.Int32
	d.fails(func(op crashfs.Op) error {
		if op.Kind != "sync" {
			return nil
		}
		begun.Done()
		select {
		case <-all:
		case <-time.After(10 * time.Second): // it hangs else
			t.Error("one waits for another")
		}
		if syncs.Add(1) == 2 {
			return errSick
		}
		return nil
	})
	if err := s.Sync(); !errors.Is(err, errSick) || s.Err() == nil {
		t.Errorf("sync: %v, poisoned by %v", err, s.Err())
	}
}
