package db

import (
	"runtime"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

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
