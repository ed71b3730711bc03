package recovery_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
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
		b, err := os.ReadFile(path)
		storetest.OK(t, err)
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
		if b, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, needle) {
			t.Errorf("rebuild %v, block %d, zeroed %v: after Delete and Sync a row is in %s", rebuild, block, zero, filepath.Base(path))
		}
		again := storetest.Copy(t, image)
		path = storetest.SegmentPath(again, x.Segment)
		if b, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
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
