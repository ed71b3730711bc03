package db

import (
	"errors"
	"os"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// A move whose copy a power cut took leaves the original.
func TestPowerCutTakesTheCopyOfAMove(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 16)}
	put(t, m, p)
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	// The log goes on in a file that was begun before the last boot.
	id, _, err := s.eng.wal.Rotate(func(uint64) []byte {
		return s.eng.state.head("an earlier boot", s.eng.openEnds(), s.eng.nextCounters())()
	})
	if err := errors.Join(err, s.eng.wal.Remove(id)); err != nil {
		t.Fatal(err)
	}
	var entry index.Entry
	v := s.eng.view()
	if err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool { entry = x; return true }); err != nil {
		t.Fatal(err)
	}
	v.Release()
	if err := s.eng.set.SealAll(); err != nil {
		t.Fatal(err)
	}
	if moved, err := s.eng.move(ctx, entry); !moved || err != nil {
		t.Fatal(moved, err)
	}
	to := s.eng.set.MaxID()
	crash(s)
	if to == entry.Loc.Segment {
		t.Fatal("the copy is in the same segment")
	}
	powerCut(t, dir, to)
	s = open(t, dir, options())
	expect(t, model(t, s, plain()), p, 16)
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	expect(t, model(t, s, plain()), p, 16)
}

// powerCut zeroes the records of a segment.
func powerCut(t *testing.T, dir string, id uint64) {
	t.Helper()
	name := (&engine{dir: dir}).segmentPath(id)
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, 4096); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, info.Size()); err != nil {
		t.Fatal(err)
	}
}
