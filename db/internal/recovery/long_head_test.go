package recovery_test

import (
	"os"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/storetest"
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
		s := storetest.Open(t, dir, storetest.Options())
		m := storetest.Model(t, s, crashtest.Plain())
		tail := kv.Tokens(crashtest.Tokens(1, 40)...)
		x := kv.Tokens(crashtest.Concat(tail.Tokens, crashtest.Tokens(2, 8))...)
		y := kv.Tokens(crashtest.Concat(tail.Tokens, crashtest.Tokens(3, 8))...)
		storetest.Put(t, m, tail)
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
		reader, err := retired.Match(t.Context(), p, db.MatchOptions{}) // keeps its segment
		storetest.OK(t, err)
		storetest.OK(t, s.Retire(t.Context(), retired.Fingerprint()))
		background := storetest.Engine(s).Inside().CkptMu() // whose barrier would cover what is moved
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
