package recovery_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
)

// A tail and a block that was put again, whose window rows are of an earlier frame; a power cut takes these: the tail is still there.
func TestWindowRowsOfAnEarlierFrame(t *testing.T) {
	d := crashtest.Windowed(40)
	s, m := storetest.Fresh(t, storetest.Options(), d)
	p := kv.Tokens(crashtest.Tokens(1, 48)...)
	storetest.Put(t, m, p.Prefix(40))
	storetest.OK(t, s.Checkpoint(t.Context()))
	rows := storetest.Filled(d, &p, 0, 48)
	for i, te := range d.Tensors {
		if te.Group > 0 {
			rows[i] = kv.TensorRows{}
		}
	}
	storetest.Must(m.Put(t.Context(), p, rows, db.PutOptions{}))(t)
	storetest.Expect(t, m, p, 40)
	storetest.Put(t, m, p)
	storetest.Expect(t, m, p, 48)
	storetest.Expect(t, m, p.Prefix(40), 40)
	storetest.ZeroPlace(t, s.Dir(), storetest.Place(t, s, m, p, 2, 0), 4096)
	storetest.Restore(t, m, p)
	storetest.Put(t, m, p)
	storetest.Expect(t, m, p, 48)
	window := storetest.Place(t, s, m, p, 2, 1)
	s = storetest.Open(t, afterCut(t, s, false, window), storetest.Options())
	if got, why := storetest.Restore(t, storetest.Model(t, s, d), p); got != 40 {
		t.Errorf("%d tokens (%v), expected 40", got, why)
	}
}

// A rebuild cannot read a block; its prefix is deleted, and Sync says that nothing is left of it.
func TestUnreadableGoesWithItsPrompt(t *testing.T) {
	for i := range 8 {
		rebuild, block, zero := i&1 > 0, 2+i&2/2, i&4 > 0
		s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
		p := kv.Tokens(crashtest.Tokens(1, 64)...)
		storetest.Put(t, m, p.Prefix(32))
		storetest.OK(t, s.Checkpoint(t.Context()))
		storetest.Put(t, m, p)
		needle := storetest.Truth(crashtest.Plain(), &p, 0, 16*block+8)
		x := storetest.Place(t, s, m, p, block, 0)
		image := storetest.Copy(t, s.Dir())
		path := storetest.SegmentPath(image, x.Segment)
		b := storetest.Must(os.ReadFile(path))(t)
		keep := bytes.Clone(b)
		b[x.Offset+20] ^= 0x40 // as the disk gives it just now
		if zero {
			clear(b[x.Offset:][:512])
		}
		storetest.OK(t, os.WriteFile(path, b, 0o600))
		if rebuild {
			storetest.Remove(t, image, storetest.IndexFile)
		}
		s = storetest.Open(t, image, storetest.Options())
		m = storetest.Model(t, s, crashtest.Plain())
		storetest.Restore(t, m, p)
		storetest.Must(m.Delete(t.Context(), p.Prefix(16)))(t)
		storetest.OK(t, s.Sync(t.Context()))
		b = storetest.Must(os.ReadFile(path))(t)
		if bytes.Contains(b, needle) {
			t.Errorf("rebuild %v, block %d, zeroed %v: after Delete and Sync a row is in %s", rebuild, block, zero, filepath.Base(path))
		}
		again := storetest.Copy(t, image)
		path = storetest.SegmentPath(again, x.Segment)
		b = storetest.Must(os.ReadFile(path))(t)
		if bytes.Contains(b, needle) { // the disk reads it again
			copy(b[x.Offset:][:512], keep[x.Offset:])
			storetest.OK(t, os.WriteFile(path, b, 0o600))
		}
		s = storetest.Open(t, again, storetest.Options())
		n := 0
		for b := range s.Blocks(t.Context()) {
			n++
			t.Log("block ", b.First, b.Tokens)
		}
		if n > 0 {
			t.Errorf("rebuild %v, block %d, zeroed %v: %d blocks are back", rebuild, block, zero, n)
		}
	}
}

// A damaged block that was put again, and its child, which was moved twice since the last checkpoint; a power cut takes all three copies.
// The child is where it was at the checkpoint, and the damaged block stays below it, as after TestReplacedBetweenCheckpoints.
func TestDamagedParentOfTwiceMoved(t *testing.T) {
	for moves := range 3 {
		s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
		p := kv.Tokens(crashtest.Tokens(1, 48)...)
		storetest.Put(t, m, p)
		storetest.OK(t, s.Checkpoint(t.Context()))
		storetest.ZeroPlace(t, s.Dir(), storetest.Place(t, s, m, p, 1, 0), 4096)
		storetest.Expect(t, m, p, 16)
		storetest.Put(t, m, p)
		storetest.Expect(t, m, p, 48)
		lost := []index.Loc{storetest.Place(t, s, m, p, 1, 0)}
		child := storetest.Key(t, s, m, p, 2)
		for range moves {
			storetest.MoveAll(t, s, func(x index.Entry) bool { return x.Key == child })
			lost = append(lost, storetest.Place(t, s, m, p, 2, 0))
		}
		s = storetest.Open(t, afterCut(t, s, false, lost...), storetest.Options())
		m = storetest.Model(t, s, crashtest.Plain())
		storetest.Expect(t, m, p, 16)
		storetest.Put(t, m, p.Prefix(32))
		if got, why := storetest.Restore(t, m, p); got != 48 {
			t.Errorf("child moved %d times: %d tokens (%v), expected 48", moves, got, why)
		}
	}
}

// A block is moved, gets a child, is found damaged and put again, all in one log: after a reboot the child is there.
func TestChildOfMovedAndReplaced(t *testing.T) {
	for i := range 4 {
		begun, again := i&1 > 0, i&2 > 0
		o := storetest.Options()
		o.Durability = db.Power
		s, m := storetest.Fresh(t, o, crashtest.Plain())
		p := kv.Tokens(crashtest.Tokens(1, 64)...)
		storetest.Put(t, m, p.Prefix(32))
		if begun {
			storetest.OK(t, s.Checkpoint(t.Context()))
		}
		sync := func() { storetest.OK(t, s.Sync(t.Context())) }
		for range 1 + i/2 {
			storetest.MoveAll(t, s, func(index.Entry) bool { return true })
			sync() // destroys the old places
		}
		storetest.Put(t, m, p)
		storetest.ZeroPlace(t, s.Dir(), storetest.Place(t, s, m, p, 1, 0), 4096)
		storetest.Expect(t, m, p, 16)
		storetest.Put(t, m, p.Prefix(32))
		storetest.Expect(t, m, p, 64)
		sync()
		s = storetest.Open(t, afterCut(t, s, false), o)
		t.Logf("checkpoint %v, moved twice %v", begun, again)
		storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 64)
		storetest.Sound(t, s)
	}
}

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
