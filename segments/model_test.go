package segments

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// world is a Set beside what it should hold.
type world struct {
	t      *rapid.T
	o      Options
	s      *Set
	recs   map[Loc]*known
	locs   []Loc // all that were ever given, in order
	leases []*held
	walks  map[uint64]func() // ends a walk over that segment
	clock  int               // counts destroys and leases
	seed   uint64
	steps  int
}

// known is a record and its fate.
type known struct {
	block   block
	model   int
	doomed  int // clock of its Destroy; 0: live
	gone    bool
	unlinks bool // its segment was queued to be unlinked
	cut     bool // it may have been cut away with the end of a recovered segment
}

type held struct {
	l     *Lease
	since int
}

// seen reports whether an open lease can see what was destroyed at that time.
func (w *world) seen(doomed int) bool {
	return slices.ContainsFunc(w.leases, func(h *held) bool { return h.since < doomed })
}

func (w *world) check() {
	t := w.t
	pending := 0
	for loc, k := range w.recs {
		err := k.block.read(w.s, loc)
		switch {
		case k.gone && (err == nil || errors.Is(err, errDiffers)):
			t.Fatalf("%v: reclaimed, and reads %v", loc, err)
		case k.gone && !k.cut && !errors.Is(err, ErrDestroyed) && !errors.Is(err, ErrMissing):
			t.Fatalf("%v: reclaimed, and reads %v", loc, err)
		case !k.gone && err != nil:
			t.Fatalf("%v (doomed at %d, %d leases): %v", loc, k.doomed, len(w.leases), err)
		}
		if k.doomed > 0 && !k.gone {
			pending++
		}
	}
	if n, _ := w.s.Pending(); n != pending {
		t.Fatalf("%d records are pending, expected %d", n, pending)
	}
	if n, _ := w.s.Leases(); n != len(w.leases) {
		t.Fatalf("%d leases are open, expected %d", n, len(w.leases))
	}
	if w.steps++; w.steps%4 != 0 {
		return
	}
	scanned := 0
	for _, info := range w.s.Segments() {
		_, err := w.s.Scan(t.Context(), info.ID, 0, func(loc Loc, r *Record) error {
			k := w.recs[loc]
			if k == nil || k.gone {
				t.Fatalf("scan found %v", loc)
			}
			if what := k.block.differs(r); what != "" {
				t.Fatalf("scan: %v differs in %s", loc, what)
			}
			scanned++
			return nil
		}, func(e *damage.Error) { t.Fatal(e) })
		ok(t, err)
		ok(t, w.s.Verify(t.Context(), info.ID, func(l Loc) bool { k := w.recs[l]; return k != nil && !k.gone },
			func(e *damage.Error) { t.Fatal(e) }, nil))
	}
	for _, k := range w.recs {
		if !k.gone {
			scanned--
		}
	}
	if scanned != 0 {
		t.Fatalf("scan found %d records more than there are", scanned)
	}
}

func (w *world) add(loc Loc, k *known) {
	if loc.Offset%4096 != 0 || loc.Length%4096 != 0 || loc.Length <= 0 {
		w.t.Fatalf("%v is not aligned", loc)
	}
	for _, old := range w.locs {
		if old.Segment == loc.Segment && old.Offset < loc.End() && loc.Offset < old.End() {
			w.t.Fatalf("%v overlaps %v, which was given before", loc, old)
		}
	}
	w.locs = append(w.locs, loc)
	w.recs[loc] = k
}

func (w *world) pick(ok func(*known) bool) (Loc, *known) {
	var from []Loc
	for _, loc := range w.locs {
		if ok(w.recs[loc]) {
			from = append(from, loc)
		}
	}
	if len(from) == 0 {
		w.t.Skip("no such record")
	}
	loc := rapid.SampledFrom(from).Draw(w.t, "record")
	return loc, w.recs[loc]
}

func (w *world) append(t *rapid.T) {
	n := rapid.IntRange(1, 2).Draw(t, "model")
	w.seed++
	sizes := rapid.SliceOfN(rapid.IntRange(0, 6000), 0, 3).Draw(t, "planes")
	if rapid.IntRange(0, 9).Draw(t, "large") == 0 {
		sizes = append(sizes, 100<<10)
	}
	b := makeBlock(n, w.seed, sizes...)
	loc := b.append(t, w.s, n)
	w.add(loc, &known{block: b, model: n})
}

func (w *world) copy(*rapid.T) {
	from, k := w.pick(func(k *known) bool { return k.doomed == 0 })
	to := must(w.s.Copy(from, k.block.meta.Seq+1000))(w.t)
	b := k.block
	b.meta.Seq += 1000
	w.add(to, &known{block: b, model: k.model})
	w.destroyLoc(from)
}

func (w *world) destroy(*rapid.T) {
	loc, _ := w.pick(func(k *known) bool { return !k.gone })
	w.destroyLoc(loc)
}

func (w *world) destroyLoc(loc Loc) {
	w.clock++
	w.s.Destroy([]Loc{loc})
	if k := w.recs[loc]; k.doomed == 0 { // a second time changes nothing
		k.doomed = w.clock
	}
}

// unlink dooms a segment with all it holds.
func (w *world) unlink(*rapid.T) {
	loc, _ := w.pick(func(k *known) bool { return !k.gone })
	for l, k := range w.recs {
		if l.Segment == loc.Segment && !k.gone {
			w.destroyLoc(l)
			k.unlinks = true
		}
	}
	w.clock++
	w.s.Unlink(loc.Segment, false)
}

// reclaimSome stops after some records.
func (w *world) reclaimSome(t *rapid.T) {
	most := rapid.IntRange(0, 3).Draw(t, "most")
	done, more, err := w.s.Reclaim(context.Background(), func(records int, _ int64) bool { return records == most })
	ok(t, err)
	if more && !w.s.Ripe() {
		w.t.Fatal("there is more, and nothing is ripe")
	}
	w.destroyed(done)
}

func (w *world) destroyed(locs []Loc) {
	for _, loc := range locs {
		k := w.recs[loc]
		if k.doomed == 0 || k.gone || w.seen(k.doomed) || w.walks[loc.Segment] != nil {
			w.t.Fatalf("%v was destroyed: doomed at %d, gone %t", loc, k.doomed, k.gone)
		}
		k.gone = true
	}
}

func (w *world) reclaim(*rapid.T) {
	w.destroyed(reclaim(w.t, w.s))
	if w.s.Ripe() {
		w.t.Fatal("something is ripe after all was destroyed")
	}
	for loc, k := range w.recs {
		if k.doomed > 0 && !k.gone && !w.seen(k.doomed) && w.walks[loc.Segment] == nil {
			w.t.Fatalf("%v was not destroyed", loc)
		}
	}
}

func (w *world) acquire(*rapid.T) {
	w.clock++
	w.leases = append(w.leases, &held{w.s.Acquire(), w.clock})
}

func (w *world) release(t *rapid.T) {
	if len(w.leases) == 0 {
		t.Skip("no lease")
	}
	i := rapid.IntRange(0, len(w.leases)-1).Draw(t, "lease")
	w.leases[i].l.Release()
	w.leases[i].l.Release()
	w.leases = slices.Delete(w.leases, i, i+1)
}

// walk begins to walk over a segment, or ends that.
func (w *world) walk(*rapid.T) {
	loc, _ := w.pick(func(k *known) bool { return !k.gone })
	if end := w.walks[loc.Segment]; end != nil {
		end()
		ripe := false
		for at, k := range w.recs {
			ripe = ripe || at.Segment == loc.Segment && k.doomed > 0 && !k.gone && !w.seen(k.doomed)
		}
		if ripe && !w.s.Ripe() {
			w.t.Fatal("what somebody walked over does not get ripe")
		}
		return
	}
	began, over, done := make(chan struct{}), make(chan struct{}), make(chan error)
	first := true
	go func(s *Set) {
		done <- s.Verify(context.Background(), loc.Segment, func(Loc) bool { return false }, func(*damage.Error) {}, func(int64) {
			if first {
				first = false
				close(began)
				<-over
			}
		})
	}(w.s)
	<-began
	w.walks[loc.Segment] = func() {
		delete(w.walks, loc.Segment)
		close(over)
		ok(w.t, <-done)
	}
}

func (w *world) endWalks() {
	for _, end := range w.walks {
		end()
	}
}

func (w *world) sync(*rapid.T) {
	ok(w.t, w.s.Sync())
}

func (w *world) seal(*rapid.T) {
	ok(w.t, w.s.SealAll())
}

func (w *world) trim(*rapid.T) { w.s.Trim() }

func (w *world) reopen(t *rapid.T) {
	w.endWalks()
	switch rapid.IntRange(0, 2).Draw(t, "how") {
	case 0:
		if len(w.leases) > 0 {
			if err := w.s.Close(); !errors.Is(err, ErrLeased) {
				t.Fatalf("closed with %d leases: %v", len(w.leases), err)
			}
			return
		}
		ok(t, w.s.Close())
	default:
		w.s.Abandon()
	}
	w.leases = nil
	s := must(Open(w.o))(t)
	s.RaiseID(w.s.MaxID()) // the log knows it: files may be gone
	w.s = s
	if rapid.Bool().Draw(t, "seal") {
		for _, info := range s.Segments() {
			for loc, k := range w.recs {
				k.cut = k.cut || k.gone && loc.Segment == info.ID
			}
			end, err := s.Scan(t.Context(), info.ID, 0, func(Loc, *Record) error { return nil }, nil)
			if err == nil {
				err = s.SealRecovered(info.ID, end)
			}
			ok(t, err)
		}
	}
	// The queue is the caller's to keep: the log has it.
	for loc, k := range w.recs {
		if k.doomed > 0 && !k.gone {
			w.destroyLoc(loc)
			if k.unlinks {
				s.Unlink(loc.Segment, false)
			}
		}
	}
}

// unsynced is a file system on which a sync costs nothing: no power is lost in this test.
type unsynced struct{ vfs.FS }

func (f unsynced) SyncDir(string) error { return nil }
func (f unsynced) Create(name string) (vfs.File, error) {
	file, err := f.FS.Create(name)
	return unsyncedFile{file}, err
}
func (f unsynced) Open(name string, readOnly bool) (vfs.File, error) {
	file, err := f.FS.Open(name, readOnly)
	return unsyncedFile{file}, err
}

type unsyncedFile struct{ vfs.File }

func (unsyncedFile) Sync() error { return nil }

func TestAgainstAModel(t *testing.T) {
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir := must(os.MkdirTemp(base, ""))(t)
		defer os.RemoveAll(dir)
		w := &world{t: t, o: options(dir), recs: map[Loc]*known{}, walks: map[uint64]func(){}}
		w.o.FS = unsynced{vfs.OS}
		w.s = must(Open(w.o))(t)
		defer func() { w.endWalks(); w.s.Abandon() }()
		t.Repeat(map[string]func(*rapid.T){
			"":        func(*rapid.T) { w.check() },
			"append":  w.append,
			"append2": w.append,
			"copy":    w.copy,
			"destroy": w.destroy,
			"unlink":  w.unlink,
			"reclaim": w.reclaim, "reclaimSome": w.reclaimSome,
			"acquire": w.acquire,
			"release": w.release,
			"walk":    w.walk,
			"sync":    w.sync,
			"seal":    w.seal,
			"trim":    w.trim,
			"reopen":  w.reopen,
		})
	})
}
