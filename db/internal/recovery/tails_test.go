package recovery_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
)

// TestTailBelowPoorerBlock: what was put stays usable for whoever goes on from it, when a longer prompt is stored later whose
// block of the same place has neither its state nor its window rows.
func TestTailBelowPoorerBlock(t *testing.T) {
	d := crashtest.Windowed(10)
	d.StateFormat = "1"
	d.Groups = append(d.Groups, kv.Group{Kind: kv.StateAt})
	d.Tensors = append(d.Tensors, kv.Tensor{Layer: 9, Role: kv.RoleState, DType: kv.Bytes, Group: 2})
	_, m := storetest.Fresh(t, storetest.Options(), d)
	long := kv.Prompt{Tokens: crashtest.Tokens(1, 80)}
	storetest.Put(t, m, kv.Prompt{Tokens: long.Tokens[:22]})
	rows := storetest.Filled(d, &long, 0, 80)
	for i, r := range storetest.Filled(d, &long, 60, 80) { // a runtime with a sliding window has no more of it
		if d.Groups[d.Tensors[i].Group].Kind == kv.Window {
			rows[i] = r
		}
	}
	storetest.Must(m.Put(t.Context(), long, rows, db.PutOptions{}))(t)
	p := kv.Prompt{Tokens: crashtest.Concat(long.Tokens[:60], crashtest.Tokens(2, 20))}
	for _, n := range []int{22, 23, 30, 60, 80} {
		if got, why := storetest.Restore(t, m, kv.Prompt{Tokens: p.Tokens[:n]}); got < 22 {
			t.Errorf("%d of %d tokens are found (%v), 22 were put", got, n, why)
		}
	}
}

// A tail is superseded, then put once more beside the longer block; a power cut takes the longer block. The first copy of the tail is
// destroyed with the second when both are deleted, and does not come back. If the cut takes the second copy too, the first stands in.
func TestSupersededTailThatIsPutAgain(t *testing.T) {
	for i := range 8 {
		d := []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(40)}[i&1]
		both, lost := i&2 > 0, i&4 > 0
		s, m := storetest.Fresh(t, storetest.Options(), d)
		p := kv.Tokens(crashtest.Tokens(1, 64)...)
		storetest.Put(t, m, p.Prefix(40))
		first := storetest.Place(t, s, m, p.Prefix(40), 2, 0)
		storetest.OK(t, s.Checkpoint(t.Context()))
		storetest.Put(t, m, p)
		torn := []loc.Loc{storetest.Place(t, s, m, p, 2, 0)}
		storetest.Put(t, m, p.Prefix(40))
		if both {
			torn = append(torn, storetest.Place(t, s, m, p.Prefix(40), 2, 0))
		}
		image := afterCut(t, s, lost, torn...)
		s = storetest.Open(t, image, storetest.Options())
		m = storetest.Model(t, s, d)
		storetest.Expect(t, m, p, 40)
		storetest.Sound(t, s)
		storetest.NothingDeadIsFound(t, s)
		storetest.Must(m.Delete(t.Context(), p.Prefix(33)))(t)
		storetest.OK(t, errors.Join(s.Sync(t.Context()), s.Close()))
		b := storetest.Must(os.ReadFile(filepath.Join(image, storetest.FirstSegment)))(t)
		if rest := b[first.Offset:][:first.Length]; slices.ContainsFunc(rest, func(x byte) bool { return x != 0 }) {
			t.Errorf("case %d: after Delete and Sync the first copy is still in the file, at %d", i, first.Offset)
		}
		storetest.Remove(t, image, storetest.IndexFile)
		storetest.Expect(t, storetest.Model(t, storetest.Open(t, image, storetest.Options()), d), p, 32)
	}
}

// Tails took each other's place token by token, and a power cut took all: what the next open needs does not double with each.
func TestManyTailsLost(t *testing.T) {
	d := crashtest.Windowed(40)
	d.BlockTokens = 64
	s, m := storetest.Fresh(t, storetest.Options(), d)
	p := kv.Tokens(crashtest.Tokens(1, 64)...)
	storetest.Put(t, m, p.Prefix(17))
	storetest.OK(t, s.Checkpoint(t.Context()))
	var lost []loc.Loc
	for n := 18; n < 38; n++ {
		storetest.Put(t, m, p.Prefix(n))
		lost = append(lost, storetest.Place(t, s, m, p.Prefix(n), 0, 0), storetest.Place(t, s, m, p.Prefix(n), 0, 1))
	}
	s = openFrugally(t, afterCut(t, s, false, lost...), storetest.Options())
	storetest.Expect(t, storetest.Model(t, s, d), p, 17)
	storetest.Sound(t, s)
}

// The same where all was durable, and what was superseded is destroyed: what the next open needs does not grow with the cube.
func TestManyTailsSuperseded(t *testing.T) {
	d := crashtest.Windowed(40)
	d.BlockTokens = 512
	o := storetest.Options()
	o.Budget = 2 << 30
	s, m := storetest.Fresh(t, o, d)
	p := kv.Tokens(crashtest.Tokens(1, 257)...)
	storetest.Put(t, m, p.Prefix(17))
	storetest.OK(t, s.Checkpoint(t.Context()))
	for n := 18; n <= len(p.Tokens); n++ {
		storetest.Put(t, m, p.Prefix(n))
	}
	storetest.OK(t, s.Sync(t.Context())) // destroys all but the last
	for _, lost := range []bool{false, true} {
		s := openFrugally(t, afterCut(t, s, lost), o)
		storetest.Expect(t, storetest.Model(t, s, d), p, len(p.Tokens))
		storetest.Sound(t, s)
	}
}

// openFrugally opens a store of a few records, and fails the test if that takes more memory than they do.
func openFrugally(t *testing.T, dir string, o db.Options) *db.Store {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := storetest.Open(t, dir, o)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("open allocated %d MiB", n>>20)
	}
	return s
}
