package recovery_test

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/wal"
)

// Records that were put, and moved on and on, between two checkpoints are there after a power cut: the places that they left are
// destroyed by then.
func TestMovedOnBetweenCheckpoints(t *testing.T) {
	for i := range 4 {
		begun, lost := i&1 > 0, i&2 > 0 // a checkpoint comes between the put and the moves; the index is lost
		for moves := range 3 {
			o := storetest.Options()
			o.Durability = db.Power
			s, m := storetest.Fresh(t, o, crashtest.Windowed(40))
			p := kv.Tokens(crashtest.Tokens(1, 100)...)
			storetest.Put(t, m, p)
			if begun {
				storetest.OK(t, s.Checkpoint(t.Context()))
			}
			for range moves {
				storetest.MoveAll(t, s, func(index.Entry) bool { return true })
				storetest.OK(t, s.Sync(t.Context())) // destroys the old places
			}
			s = storetest.Open(t, afterCut(t, s, lost), o)
			t.Logf("checkpoint %v, index lost %v, %d moves", begun, lost, moves)
			storetest.Expect(t, storetest.Model(t, s, crashtest.Windowed(40)), p, 100)
			storetest.Sound(t, s)
		}
	}
}

// A record that was moved twice is there, also if the index is lost and a kill came when only the place in the middle was
// destroyed.
func TestMovedTwiceStays(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	dir := s.Dir()
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	storetest.Put(t, m, p)
	var places []index.Loc // in the middle
	storetest.MoveAll(t, s, func(index.Entry) bool { return true })
	for i := range 4 {
		places = append(places, storetest.Place(t, s, m, p, i, 0))
	}
	storetest.MoveAll(t, s, func(index.Entry) bool { return true })
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Checkpoint(stopped); err == nil { // it got as far as a head of the log that lists what is to be destroyed
		t.Fatal("checkpoint with a cancelled context")
	}
	image := storetest.Copy(t, dir)
	for _, l := range places {
		storetest.ZeroPlace(t, image, l, l.Length)
	}
	storetest.Remove(t, image, storetest.IndexFile)
	for range 2 {
		s := storetest.Open(t, image, storetest.Options())
		storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 64)
		storetest.OK(t, s.Close())
		storetest.Remove(t, image, storetest.IndexFile)
	}
}

// A move that comes when the model is retired already begins no segment for it.
func TestMoveOfARetiredModel(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Tokens(crashtest.Tokens(1, 48)...)
	storetest.Put(t, m, p)
	var moves []index.Entry
	v := storetest.Engine(s).View()
	err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool { moves = append(moves, x); return true })
	v.Release()
	storetest.OK(t, err)
	reader := storetest.Match(t, m, p) // keeps the segment
	storetest.OK(t, s.Retire(t.Context(), m.Fingerprint()))
	if moved, err := storetest.Engine(s).Space.Inside().Move(t.Context(), moves[0]); moved || err != nil {
		t.Fatal(moved, err)
	}
	reader.Close()
	m = storetest.Model(t, s, crashtest.Plain())
	storetest.Expect(t, m, p, 0)
	storetest.Put(t, m, p)
	storetest.Expect(t, m, p, 48)
}

// What was put after its model was retired and registered again is there, also if the index is lost and a kill came when it had
// been moved, and the old places destroyed.
func TestMovedAfterRetireStays(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	p, old := kv.Tokens(crashtest.Tokens(1, 64)...), kv.Tokens(crashtest.Tokens(2, 64)...)
	m := storetest.Model(t, s, crashtest.Plain())
	storetest.Put(t, m, p)
	storetest.Put(t, m, old)
	storetest.OK(t, s.Retire(t.Context(), m.Fingerprint()))
	m = storetest.Model(t, s, crashtest.Plain())
	storetest.Put(t, m, p)
	storetest.MoveAll(t, s, func(index.Entry) bool { return true })
	for _, destroyed := range []bool{false, true} {
		if destroyed {
			storetest.OK(t, s.Sync(t.Context()))
		}
		for _, lost := range []bool{false, true} {
			image := storetest.Copy(t, dir)
			if lost {
				storetest.Remove(t, image, storetest.IndexFile)
			}
			s := storetest.Open(t, image, storetest.Options())
			m := storetest.Model(t, s, crashtest.Plain())
			t.Logf("destroyed %v, index lost %v", destroyed, lost)
			storetest.Expect(t, m, old, 0)
			storetest.Expect(t, m, p, 64)
		}
	}
}

// A tail, twice in one log, under two blocks that took its places and are lost: one of the copies stands in, and the other is destroyed
// before the log head, because that is too long.
func TestSecondCopyIsInALongHead(t *testing.T) {
	defer engine.SetMaxHead(wal.MaxPayload)()
	for range 8 {
		engine.SetMaxHead(wal.MaxPayload)
		s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
		dir := s.Dir()
		tail := kv.Tokens(crashtest.Tokens(1, 40)...)
		x := kv.Tokens(crashtest.Concat(tail.Tokens, crashtest.Tokens(2, 8))...)
		y := kv.Tokens(crashtest.Concat(tail.Tokens, crashtest.Tokens(3, 8))...)
		storetest.Put(t, m, tail)
		first := storetest.Place(t, s, m, tail, 2, 0)
		storetest.OK(t, s.Checkpoint(t.Context()))
		storetest.Put(t, m, y)
		storetest.Put(t, m, tail)
		storetest.Put(t, m, x)
		lost := []index.Loc{storetest.Place(t, s, m, x, 2, 0), storetest.Place(t, s, m, y, 2, 0)}
		image := storetest.Copy(t, dir)
		for _, l := range lost {
			storetest.ZeroPlace(t, image, l, 4096)
		}
		storetest.OK(t, crashtest.Reboot(vfs.OS, image))
		engine.SetMaxHead(10)
		s = storetest.Open(t, image, storetest.Options())
		m = storetest.Model(t, s, crashtest.Plain())
		storetest.Expect(t, m, tail, 40)
		storetest.Put(t, m, kv.Tokens(crashtest.Tokens(9, 32)...)) // begins the log
		storetest.Expect(t, m, tail, 40)
		head := storetest.Must(recovery.ReadHead(storetest.LogHead(t, image)))(t)
		for _, l := range append(lost, first) { // without the first in it, a later replay could take that copy for the one that lives, and it is destroyed
			if !slices.Contains(head.Tombstones, l) {
				t.Errorf("the head does not list %+v: %+v", l, head.Tombstones)
			}
		}
		engine.SetMaxHead(wal.MaxPayload)
		again := storetest.Copy(t, image)
		s = storetest.Open(t, again, storetest.Options())
		storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), tail, 40)
	}
}

// A power cut takes the name of a segment with the copies of what was moved; the log head is too long, so that what is dead is destroyed,
// and segments unlinked, before it is written: it must still list the copies. What stands in is moved again, and the process ends.
func TestLostSegmentIsInALongHead(t *testing.T) {
	defer engine.SetMaxHead(wal.MaxPayload)()
	for _, long := range []bool{false, true} {
		engine.SetMaxHead(wal.MaxPayload)
		dir := t.TempDir()
		s := storetest.Open(t, dir, storetest.Options())
		m, retired := storetest.Model(t, s, crashtest.Plain()), storetest.Model(t, s, crashtest.Windowed(40))
		p := kv.Tokens(crashtest.Tokens(1, 64)...)
		storetest.Put(t, m, p)
		storetest.Put(t, retired, p)
		storetest.OK(t, s.Checkpoint(t.Context()))
		reader := storetest.Match(t, retired, p) // keeps its segment
		storetest.OK(t, s.Retire(t.Context(), retired.Fingerprint()))
		background := storetest.Engine(s).Checkpoints.Inside().Mu() // whose barrier would cover what is moved
		background.Lock()
		storetest.MoveAll(t, s, func(index.Entry) bool { return true })
		to := storetest.Place(t, s, m, p, 1, 0)
		image := storetest.Copy(t, dir)
		background.Unlock()
		reader.Close()
		storetest.OK(t, os.Remove(folder.SegmentPath(image, to.Segment)))
		storetest.OK(t, crashtest.Reboot(vfs.OS, image))
		if long {
			engine.SetMaxHead(10)
		}
		s = storetest.Open(t, image, storetest.Options())
		m = storetest.Model(t, s, crashtest.Plain())
		storetest.Expect(t, m, p, 64)
		storetest.MoveAll(t, s, func(index.Entry) bool { return true })
		storetest.OK(t, s.Sync(t.Context()))
		storetest.Expect(t, m, p, 64)
		engine.SetMaxHead(wal.MaxPayload)
		again := storetest.Copy(t, image)
		s = storetest.Open(t, again, storetest.Options())
		m = storetest.Model(t, s, crashtest.Plain())
		storetest.Sound(t, s)
		if got, why := storetest.Restore(t, m, p); got != 64 {
			t.Errorf("long %v: %d tokens (%v), expected 64", long, got, why)
		}
	}
}
