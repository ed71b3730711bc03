package db

import (
	"os"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/wal"
)

// A tail, twice in one log, under two blocks that took its places and are lost: one of the copies stands in, and the other is destroyed
// before the log head, because that is too long.
func TestSecondCopyIsInALongHead(t *testing.T) {
	defer engine.SetMaxHead(wal.MaxPayload)()
	for range 8 {
		engine.SetMaxHead(wal.MaxPayload)
		dir := t.TempDir()
		s := open(t, dir, options())
		m := model(t, s, plain())
		tail := kv.Tokens(tokens(1, 40)...)
		x := kv.Tokens(concat(tail.Tokens, tokens(2, 8))...)
		y := kv.Tokens(concat(tail.Tokens, tokens(3, 8))...)
		put(t, m, tail)
		if err := s.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
		put(t, m, y)
		put(t, m, tail)
		put(t, m, x)
		lost := []index.Loc{placeOf(t, m, x, 2, 0), placeOf(t, m, y, 2, 0)}
		image := copyStore(t, dir)
		for _, l := range lost {
			zeroRecord(t, image, l, 4096)
		}
		if err := crashtest.Reboot(vfs.OS, image); err != nil {
			t.Fatal(err)
		}
		engine.SetMaxHead(10)
		s = open(t, image, options())
		m = model(t, s, plain())
		expect(t, m, tail, 40)
		put(t, m, kv.Tokens(tokens(9, 32)...)) // begins the log
		expect(t, m, tail, 40)
		engine.SetMaxHead(wal.MaxPayload)
		again := copyStore(t, image)
		s = open(t, again, options())
		expect(t, model(t, s, plain()), tail, 40)
	}
}

// A power cut takes the name of a segment with the copies of what was moved; the log head is too long, so that what is dead is destroyed,
// and segments unlinked, before it is written: it must still list the copies. What stands in is moved again, and the process ends.
func TestLostSegmentIsInALongHead(t *testing.T) {
	defer engine.SetMaxHead(wal.MaxPayload)()
	for _, long := range []bool{false, true} {
		engine.SetMaxHead(wal.MaxPayload)
		dir := t.TempDir()
		s := open(t, dir, options())
		m, retired := model(t, s, plain()), model(t, s, windowed(40))
		p := kv.Tokens(tokens(1, 64)...)
		put(t, m, p)
		put(t, retired, p)
		if err := s.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
		reader, err := retired.Match(ctx, p, MatchOptions{}) // keeps its segment
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Retire(ctx, retired.Fingerprint()); err != nil {
			t.Fatal(err)
		}
		moveAll(t, s, func(index.Entry) bool { return true })
		to := placeOf(t, m, p, 1, 0)
		image := copyStore(t, dir)
		reader.Close()
		if err := os.Remove(folder.SegmentPath(image, to.Segment)); err != nil {
			t.Fatal(err)
		}
		if err := crashtest.Reboot(vfs.OS, image); err != nil {
			t.Fatal(err)
		}
		if long {
			engine.SetMaxHead(10)
		}
		s = open(t, image, options())
		m = model(t, s, plain())
		expect(t, m, p, 64)
		moveAll(t, s, func(index.Entry) bool { return true })
		if err := s.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		expect(t, m, p, 64)
		engine.SetMaxHead(wal.MaxPayload)
		again := copyStore(t, image)
		s = open(t, again, options())
		m = model(t, s, plain())
		soundly(t, s)
		if got, why := restore(t, m, p); got != 64 {
			t.Errorf("long %v: %d tokens (%v), expected 64", long, got, why)
		}
	}
}
