package db

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// TestTailBelowPoorerBlock: what was put stays usable for whoever goes on from it, when a longer prompt is stored later whose
// block of the same place has neither its state nor its window rows.
func TestTailBelowPoorerBlock(t *testing.T) {
	d := windowed(10)
	d.StateFormat = "1"
	d.Groups = append(d.Groups, kv.Group{Kind: kv.StateAt})
	d.Tensors = append(d.Tensors, kv.Tensor{Layer: 9, Role: kv.RoleState, DType: kv.Bytes, Group: 2})
	s := open(t, t.TempDir(), options())
	m := model(t, s, d)
	long := kv.Prompt{Tokens: tokens(1, 80)}
	put(t, m, kv.Prompt{Tokens: long.Tokens[:22]})
	rows := filled(d, &long, 0, 80)
	for i, r := range filled(d, &long, 60, 80) { // a runtime with a sliding window has no more of it
		if d.Groups[d.Tensors[i].Group].Kind == kv.Window {
			rows[i] = r
		}
	}
	if _, err := m.Put(ctx, long, rows, PutOptions{}); err != nil {
		t.Fatal(err)
	}
	p := kv.Prompt{Tokens: concat(long.Tokens[:60], tokens(2, 20))}
	for _, n := range []int{22, 23, 30, 60, 80} {
		if got, why := restore(t, m, kv.Prompt{Tokens: p.Tokens[:n]}); got < 22 {
			t.Errorf("%d of %d tokens are found (%v), 22 were put", got, n, why)
		}
	}
}

// A tail is superseded, then put once more beside the longer block; a power cut takes the longer block. The first copy of the tail is
// destroyed with the second when both are deleted, and does not come back. If the cut takes the second copy too, the first stands in.
func TestSupersededTailThatIsPutAgain(t *testing.T) {
	for i := range 8 {
		d := []kv.Descriptor{plain(), windowed(40)}[i&1]
		both, lost := i&2 > 0, i&4 > 0
		dir := t.TempDir()
		s := open(t, dir, options())
		m := model(t, s, d)
		p := kv.Tokens(tokens(1, 64)...)
		put(t, m, p.Prefix(40))
		first := placeOf(t, m, p.Prefix(40), 2, 0)
		if err := s.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
		put(t, m, p)
		torn := []index.Loc{placeOf(t, m, p, 2, 0)}
		put(t, m, p.Prefix(40))
		if both {
			torn = append(torn, placeOf(t, m, p.Prefix(40), 2, 0))
		}
		image := copyStore(t, dir)
		for _, l := range torn {
			zeroRecord(t, image, l, 4096)
		}
		cutPower(t, image, lost)
		s = open(t, image, options())
		m = model(t, s, d)
		expect(t, m, p, 40)
		soundly(t, s)
		if err := s.liveDoomed(); err != nil {
			t.Error(err)
		}
		if _, err := m.Delete(ctx, p.Prefix(33)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Sync(ctx), s.Close()); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(image, firstSegment))
		if err != nil {
			t.Fatal(err)
		}
		if rest := b[first.Offset:][:first.Length]; slices.ContainsFunc(rest, func(x byte) bool { return x != 0 }) {
			t.Errorf("case %d: after Delete and Sync the first copy is still in the file, at %d", i, first.Offset)
		}
		if err := os.Remove(filepath.Join(image, indexName)); err != nil {
			t.Fatal(err)
		}
		expect(t, model(t, open(t, image, options()), d), p, 32)
	}
}

// Tails took each other's place token by token, and a power cut took all: what the next open needs does not double with each.
func TestManyTailsLost(t *testing.T) {
	d := windowed(40)
	d.BlockTokens = 64
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, d)
	p := kv.Tokens(tokens(1, 64)...)
	put(t, m, p.Prefix(17))
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	var lost []index.Loc
	for n := 18; n < 38; n++ {
		put(t, m, p.Prefix(n))
		lost = append(lost, placeOf(t, m, p.Prefix(n), 0, 0), placeOf(t, m, p.Prefix(n), 0, 1))
	}
	image := copyStore(t, dir)
	for _, l := range lost {
		zeroRecord(t, image, l, 4096)
	}
	cutPower(t, image, false)
	s = openFrugally(t, image, options())
	expect(t, model(t, s, d), p, 17)
	soundly(t, s)
}

// The same where all was durable, and what was superseded is destroyed: what the next open needs does not grow with the cube.
func TestManyTailsSuperseded(t *testing.T) {
	d := windowed(40)
	d.BlockTokens = 512
	o := options()
	o.Budget = 2 << 30
	dir := t.TempDir()
	s := open(t, dir, o)
	m := model(t, s, d)
	p := kv.Tokens(tokens(1, 257)...)
	put(t, m, p.Prefix(17))
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	for n := 18; n <= len(p.Tokens); n++ {
		put(t, m, p.Prefix(n))
	}
	if err := s.Sync(ctx); err != nil { // destroys all but the last
		t.Fatal(err)
	}
	for _, lost := range []bool{false, true} {
		image := copyStore(t, dir)
		cutPower(t, image, lost)
		s := openFrugally(t, image, o)
		expect(t, model(t, s, d), p, len(p.Tokens))
		soundly(t, s)
	}
}

// openFrugally opens a store of a few records, and fails the test if that takes more memory than they do.
func openFrugally(t *testing.T, dir string, o Options) *Store {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := open(t, dir, o)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("open allocated %d MiB", n>>20)
	}
	return s
}
