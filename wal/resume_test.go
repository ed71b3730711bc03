package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// stuck is a log whose process was killed on a full disk, with no spare left, after that many frames in its newest file.
func stuck(t *testing.T, frames int) (*disk, map[uint64]wrote) {
	t.Helper()
	d := largeDisk(t)
	log := d.create(1, 1, "one")
	written := map[uint64]wrote{}
	put := func() {
		w := wrote{2, fmt.Sprint("frame ", log.LastLSN()+1, strings.Repeat(".", int(log.LastLSN()*37%500)))}
		written[addReserved(t, log, w.payload)] = w
	}
	put()
	d.fill(0)
	rotate(t, log, "two")
	for range frames {
		put()
	}
	d = d.kill()
	d.fill(0)
	return d, written
}

// After a kill on a full disk without a spare, the log goes on in the newest file; what it says then survives further kills and
// power cuts, and so does all before. Frames that make room find space there that others leave.
func TestGoesOnInTheNewestFile(t *testing.T) {
	for frames := range 60 {
		d, written := stuck(t, frames)
		rnd := rand.New(rand.NewPCG(uint64(frames), 1))
		for round := range 4 {
			before := d.Used()
			log := d.goOn(d.replay(), fmt.Sprint("round ", round))
			for i := range 5 {
				w := wrote{2, fmt.Sprint("round ", round, " frame ", i, strings.Repeat("x", rnd.IntN(300)))}
				lsn, err := log.AppendReserved(w.kind, []byte(w.payload))
				if err != nil {
					t.Fatalf("%d frames, round %d: %v", frames, round, err)
				}
				written[lsn] = w
				if i == 2 {
					ok(t, log.Sync(lsn))
				}
			}
			if d.Used() != before {
				t.Fatalf("%d bytes were used, now %d: blocks were given up on the way", before, d.Used())
			}
			least, last := log.DurableLSN(), log.LastLSN()
			if round%2 == 0 {
				d = d.kill()
			} else {
				d = d.cut(rnd)
			}
			d.fill(0)
			k := d.replay()
			if err := k.whole(written); err != nil {
				t.Fatalf("%d frames, round %d: %v", frames, round, err)
			}
			if k.rec.LastLSN < least || round%2 == 0 && k.rec.LastLSN != last {
				t.Fatalf("replayed to %d, at least %d were durable, %d written", k.rec.LastLSN, least, last)
			}
			if k.snapshots[k.rec.LastLSN] == "" && !strings.HasPrefix(fmt.Sprint(k.snapshots), "map[0:one") {
				t.Fatalf("%v", k.snapshots)
			}
			for lsn := range written {
				if lsn > k.rec.LastLSN {
					delete(written, lsn)
				}
			}
		}
	}
}

// A snapshot inside a file was durable before the frame behind it: where it is damaged, it is not taken for a torn end, and
// nothing behind it is lost.
func TestDamagedSnapshotInAFile(t *testing.T) {
	d, written := stuck(t, 3)
	k := d.replay()
	path, start := k.end()
	written[5] = wrote{2, "behind it"}
	addReserved(t, d.goOn(k, "snap"), "behind it")
	d = d.kill()
	whole := d.read(path)
	for at := start; at < start+frameBytes(frameHead+4); at++ {
		for bit := range 8 {
			d.write(path, at, []byte{whole[at] ^ 1<<bit})
			k := d.replay()
			if err := k.same(written); err != nil || k.rec.LastLSN != 5 || k.rec.Torn || len(k.frames) != len(written) {
				t.Fatalf("bit %d of byte %d: %v, %+v", bit, at-start, err, k.rec)
			}
			if len(k.rec.Damage) == 0 && k.snapshots[4] != "snap" {
				t.Fatalf("bit %d of byte %d: not named, and the snapshot is %q", bit, at-start, k.snapshots[4])
			}
		}
		d.write(path, at, whole[at:at+1])
	}
}

// leaveTorn leaves behind the end of the newest file what a power cut may: frame 5 is torn, of which the payload is five, and frame 6 is
// whole where it would lie behind a snapshot and frame 5.
func leaveTorn(d *disk, five func(end int64) []byte) (at int64) {
	path, end := d.replay().end()
	seed := frameSeed(testUUID)
	torn := appendFrame(nil, seed, frameHeader{kind: 2, file: 2, offset: uint64(end), lsn: 5, durable: 1}, five(end))
	at = end + frameBytes(frameHead+4) + int64(len(torn))
	d.write(path, end, []byte("torn"))
	d.write(path, at, appendFrame(nil, seed, frameHeader{kind: 2, file: 2, offset: uint64(at), lsn: 6, durable: 1}, []byte("six")))
	return at
}

// What a crash tore behind the end is gone before anything is written there: an old frame cannot come to follow a new one.
func TestGoesOnOverATornEnd(t *testing.T) {
	d, written := stuck(t, 3)
	at := leaveTorn(d, func(int64) []byte { return []byte("five") })
	k := d.replay()
	if k.rec.LastLSN != 4 || !k.rec.Torn {
		t.Fatalf("%+v", k.rec)
	}
	log := d.goOn(k, "snap")
	written[5] = wrote{2, "new!"}
	addReserved(t, log, "new!")
	if log.FileID() != 2 || log.end != at {
		t.Fatalf("file %d, end %d, want %d", log.FileID(), log.end, at)
	}
	k = d.kill().replay()
	if err := k.whole(written); err != nil || k.rec.LastLSN != 5 || k.snapshots[4] != "snap" {
		t.Fatalf("%v, %+v, %v", err, k.rec, k.snapshots)
	}
}

// Zeros whose fsync failed are read from the page cache by the next run, and not on the disk: an old frame behind them must not
// follow a new one after a power cut.
func TestZerosThatNeverReachedTheDisk(t *testing.T) {
	d, _ := stuck(t, 3)
	var five []byte
	at := leaveTorn(d, func(end int64) []byte { // frame 6 begins at a page's start
		five = make([]byte, roundUp(end+1000, blockBytes)-end-2*minFrame-8)
		return five
	})
	if at%blockBytes != 0 {
		t.Fatal(at)
	}
	log := d.goOn(d.replay(), "snap")
	syncs := 0
	d.fails(errInjected, func(op crashfs.Op) bool {
		if op.Kind == "sync" {
			syncs++
		}
		return op.Kind == "sync" && syncs == 3 // files 1, 2, then the zeros
	})
	if _, err := log.AppendReserved(3, five); err == nil || log.Err() == nil {
		t.Fatal(err)
	}
	d = d.kill()
	log = d.goOn(d.replay(), "snap")
	lsn := addReserved(t, log, string(five))
	ok(t, log.Sync(lsn))
	for seed := range uint64(20) {
		k := d.cut(rand.New(rand.NewPCG(seed, 1))).replay()
		if k.rec.LastLSN != lsn {
			t.Fatalf("%d was the last, replayed to %d: %q", lsn, k.rec.LastLSN, k.frames[len(k.frames)-1].Payload)
		}
	}
}

// The log does not go on in a file whose end it does not know.
func TestDoesNotGoOnInADamagedFile(t *testing.T) {
	d, _ := stuck(t, 3)
	f := d.replay().frames[2]
	d.write(f.File, f.Offset+50, []byte{0xff})
	log := d.createLater(3, 5, "")
	if _, err := log.AppendReserved(2, nil); !errors.Is(err, vfs.ErrNoSpace) || log.Err() != nil {
		t.Fatalf("%v, %v", err, log.Err())
	}
}

// unnamed is a log whose process was killed when its newest file had got its name, and that was not durable.
func unnamed(t *testing.T) (killed *disk) {
	t.Helper()
	d := newDisk(t)
	log := d.create(1, 1, "one")
	add(t, log, "first")
	renamed := false
	d.Before(func(op crashfs.Op) error {
		if renamed && op.Kind == "syncdir" && killed == nil {
			killed = d.kill()
		}
		renamed = renamed || op.Kind == "rename"
		return nil
	})
	rotate(t, log, "two")
	return killed
}

// A file that a killed run had just named may be known by that name in memory only: no other file gets a name before that is durable,
// or a power cut could leave a hole.
func TestNamesOfTheRunBefore(t *testing.T) {
	d := unnamed(t)
	d.Before(func(op crashfs.Op) error {
		if op.Kind == "syncdir" {
			d.afterCuts(1)
		}
		return nil
	})
	d.create(3, 2, "three")
}

// So is its name made durable before the log goes on in it.
func TestGoesOnInAFileWhoseNameIsNotDurable(t *testing.T) {
	killed := unnamed(t)
	killed.fill(0)
	log := killed.goOn(killed.replay(), "three")
	lsn := addReserved(t, log, "a deletion")
	ok(t, log.Sync(lsn))
	killed.afterCuts(lsn)
}

// The log does not go on in the newest file where that leaves nothing and the spare has room.
func TestGoesOnWhereRoomIs(t *testing.T) {
	d, log := largeLog(t)
	d.fill(0)
	var err error
	for n := 16; err == nil; n = 48 {
		_, err = log.AppendReserved(2, make([]byte, n))
	}
	if left := log.reservedBytes - log.end; left < 48 {
		t.Fatal("left", left)
	}
	d = d.kill()
	d.resize(d.o.sparePath(), 16<<10) // a small spare: a recycled or a donated file
	d.fill(0)
	log = d.goOn(d.replay(), "")
	for i := range 3 {
		if _, err := log.AppendReserved(3, make([]byte, 48)); err != nil {
			_, _, rerr := log.Rotate(text(""))
			t.Errorf("try %d: %v; rotate: %v; file %d has %d bytes left, the spare has %d", i, err, rerr, log.FileID(), log.reservedBytes-log.end, log.spare.bytes)
		}
	}
}

// smallFile is a log that has reserved its next file and was closed, so that its only file is small.
func smallFile(t *testing.T) *disk {
	d, log := largeLog(t)
	add(t, log, strings.Repeat(".", 8192-112-48))
	ok(t, log.Close())
	return d
}

// checkpoint rotates the log and removes the files before.
func checkpoint(t *testing.T, log *Log) (id uint64) {
	t.Helper()
	id, _ = rotate(t, log, "")
	ok(t, log.Remove(id))
	return id
}

// A clean Close on a full disk gives up no space that the next run would not find in the spare.
func TestCloseKeepsTheReserve(t *testing.T) {
	d := smallFile(t)
	d.fill(0)
	log := d.create(2, 2, "")
	addReserved(t, log, "second")
	checkpoint(t, log)
	nine := strings.Repeat(".", 9000)
	addReserved(t, log, nine) // here it works
	ok(t, log.Close())
	d.fill(0) // somebody else took what was given up
	if _, err := d.goOn(d.replay(), "").AppendReserved(2, []byte(nine)); err != nil {
		t.Fatal("after a clean Close: ", err)
	}
}

// Where the next run finds a whole spare, a clean Close gives back what the last file has reserved: the file ends with the zeros that say
// that nothing was cut off.
func TestCloseGivesRoomBack(t *testing.T) {
	d, log := largeLog(t)
	add(t, log, "first")
	ok(t, log.Close())
	k := d.kill().replay()
	path, end := k.end()
	if info := must(d.Stat(path))(t); info.Size != end+tailBytes || info.Allocated != blockBytes || k.rec.Torn {
		t.Errorf("the last frame ends at %d, the file: %+v, %+v", end, info, k.rec)
	}
}

// Beside a spare that is only too small it gives up nothing, and the spare stays as well: on a full disk both may be all that there is.
func TestSmallSpareStays(t *testing.T) {
	d, log := largeLog(t)
	d.smallSpare(log)
	full := d.Used()
	add(t, log, "first") // no more is to be had for the spare
	ok(t, log.Close())
	if d.Used() != full {
		t.Errorf("%d bytes of %d are used: blocks were given up on a full disk", d.Used(), full)
	}
}

// Of the files that go, one that is large enough becomes the spare.
func TestRecyclesALargeFile(t *testing.T) {
	d := smallFile(t)
	add(t, d.create(2, 2, ""), "second")
	d = d.kill()
	d.fill(0)
	log := d.create(3, 3, "") // in the spare; no other is to be had
	before := d.Used()
	if id := checkpoint(t, log); id != 3 { // goes on in file 3
		t.Fatal(id)
	}
	if log.spare.bytes < d.o.PreallocBytes/2 {
		t.Errorf("the spare has %d bytes; %d bytes were given up on a full disk", log.spare.bytes, before-d.Used())
	}
	d.fill(0)
	for range 2000 {
		if _, err := log.AppendReserved(2, make([]byte, 1000)); err != nil {
			checkpoint(t, log)
		}
	}
}

// To sync what was recovered, no file is begun where there is no room for one.
func TestSyncOfWhatWasRecovered(t *testing.T) {
	d, log := newLog(t)
	add(t, log, "first")
	d.resize(d.o.path(1), log.end)
	ok(t, d.Remove(d.o.sparePath()))
	d = d.kill()
	d.fill(0)
	ok(t, d.createLater(2, 2, strings.Repeat("s", 4096)).Sync(1))
}

// The snapshot of a log that begins later is asked for when it begins, and not before: a process that only reads has no use for it.
func TestCreateLaterAsksLate(t *testing.T) {
	asked := 0
	log := must(CreateLater(newDisk(t).o, 1, 1, func() []byte {
		asked++
		return []byte("state")
	}))(t)
	if asked > 0 || log.Begun() {
		t.Error("asked before anything is written")
	}
	add(t, log, "first")
	add(t, log, "second")
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
