package db

import (
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// A block is moved, gets a child, is found damaged and put again, all in one log: after a reboot the child is there.
func TestChildOfMovedAndReplaced(t *testing.T) {
	for i := range 4 {
		begun, again := i&1 > 0, i&2 > 0
		o := options()
		o.Durability = Power
		dir := t.TempDir()
		s := open(t, dir, o)
		m := model(t, s, plain())
		p := kv.Tokens(tokens(1, 64)...)
		put(t, m, p.Prefix(32))
		if begun {
			if err := s.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
		}
		sync := func() {
			if err := s.Sync(ctx); err != nil {
				t.Fatal(err)
			}
		}
		for range 1 + i/2 {
			moveAll(t, s, func(index.Entry) bool { return true })
			sync() // destroys the old places
		}
		put(t, m, p)
		zeroRecord(t, dir, placeOf(t, m, p, 1, 0), 4096)
		expect(t, m, p, 16)
		put(t, m, p.Prefix(32))
		expect(t, m, p, 64)
		sync()
		image := copyStore(t, dir)
		cutPower(t, image, false)
		s = open(t, image, o)
		t.Logf("checkpoint %v, moved twice %v", begun, again)
		expect(t, model(t, s, plain()), p, 64)
		soundly(t, s)
	}
}

// A tail and a block that was put again, whose window rows are of an earlier frame; a power cut takes these: the tail is still there.
func TestWindowRowsOfAnEarlierFrame(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	d := windowed(40)
	m := model(t, s, d)
	p := kv.Tokens(tokens(1, 48)...)
	put(t, m, p.Prefix(40))
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	rows := filled(d, &p, 0, 48)
	for i, te := range d.Tensors {
		if te.Group > 0 {
			rows[i] = kv.TensorRows{}
		}
	}
	if _, err := m.Put(ctx, p, rows, PutOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, m, p, 40)
	put(t, m, p)
	expect(t, m, p, 48)
	expect(t, m, p.Prefix(40), 40)
	zeroRecord(t, dir, placeOf(t, m, p, 2, 0), 4096)
	restore(t, m, p)
	put(t, m, p)
	expect(t, m, p, 48)
	window := placeOf(t, m, p, 2, 1)
	image := copyStore(t, dir)
	zeroRecord(t, image, window, 4096)
	cutPower(t, image, false)
	s = open(t, image, options())
	if got, why := restore(t, model(t, s, d), p); got != 40 {
		t.Errorf("%d tokens (%v), expected 40", got, why)
	}
}
