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

// largeDisk is a disk for a log that reserves more than a few blocks ahead.
func largeDisk(t testing.TB) *disk {
	d := newDisk(t)
	d.o.PreallocBytes = 64 << 10
	return d
}

func largeLog(t testing.TB) (*disk, *Log) {
	t.Helper()
	d := largeDisk(t)
	return d, d.create(1, 1, "")
}

// smallSpare fills the disk, as if it had had no room for more than a few blocks of the spare.
func (d *disk) smallSpare(log *Log) (bytes int64) {
	d.t.Helper()
	const small = 16 << 10
	ok(d.t, log.spare.file.Truncate(small))
	log.holdSpare(small)
	d.fill(0)
	return small
}

// Whenever the disk gets full, the log goes on in what it reserved: half a step, then the whole spare file, then it
// refuses without losing anything, then it goes on when there is room again.
func TestFullDisk(t *testing.T) {
	payload := strings.Repeat("evict", 40)
	const step = 64 << 10
	frames := step / int(frameBytes(uint32(frameHead+len(payload))))
	for before := 0; before < 2*frames; before += 13 {
		d, log := largeLog(t)
		for range before {
			add(t, log, payload)
		}
		fill := func() (n int) {
			for ; ; n++ {
				if _, err := log.AppendReserved(3, []byte(payload)); err != nil {
					if !errors.Is(err, vfs.ErrNoSpace) || log.Err() != nil {
						t.Fatalf("append on a full disk: %v", err)
					}
					return n
				}
			}
		}
		d.fill(0)
		if n := fill(); n < frames/2-1 {
			t.Fatalf("%d frames into the current file after %d, want %d", n, before, frames/2)
		}
		rotate(t, log, "spare")
		if n := fill(); n < frames-1 {
			t.Fatalf("%d frames into the spare, want about %d", n, frames)
		}
		if _, _, err := log.Rotate(text("none")); !errors.Is(err, vfs.ErrNoSpace) || log.Err() != nil {
			t.Fatalf("rotate without a spare: %v", err)
		}
		last := log.LastLSN()
		ok(t, log.Remove(2)) // evicting made room
		if lsn := add(t, log, ""); lsn != last+1 {
			t.Fatalf("LSN %d after %d", lsn, last)
		}
		d.fill(step)
		rotate(t, log, "again")
		if k := d.kill().replay(); k.rec.LastLSN != last+1 || len(k.rec.Damage) > 0 || k.rec.Torn {
			t.Fatalf("%+v", k.rec)
		}
	}
}

// What a failed write left is gone, however much it was, zeros follow the last frame, and the space is reserved anew; if it cannot be
// taken away, the log is poisoned.
func TestFailedWriteIsUndone(t *testing.T) {
	for part := range 200 {
		d, log := newLog(t)
		add(t, log, "first")
		short := &crashfs.Short{Bytes: part, Err: errInjected}
		d.fails(short, kinds("write"))
		if _, err := log.Append(3, make([]byte, 200)); !errors.Is(err, short) || log.Err() != nil {
			t.Fatalf("%v", err)
		}
		d.Before(nil)
		if d.kill().replay().rec.Torn {
			t.Fatalf("part of %d bytes: nothing follows the last frame", part)
		}
		add(t, log, "")
		k := d.kill().replay()
		if len(k.frames) != 2 || k.frames[1].Kind != 2 || k.rec.Torn || len(k.rec.Damage) > 0 {
			t.Fatalf("part of %d bytes: %+v, %+v", part, k.frames, k.rec)
		}
		if info := must(d.Stat(d.o.path(1)))(t); info.Size < log.end+d.o.PreallocBytes/2 {
			t.Fatalf("%d bytes reserved, the end is %d", info.Size, log.end)
		}
		d.fails(short, kinds("write", "truncate"))
		if _, err := log.Append(3, make([]byte, 200)); !errors.Is(err, ErrPoisoned) || err != log.Err() {
			t.Fatalf("%v", err)
		}
	}
}

// A frame that was written whole, and refused all the same, does not come back with a power cut behind a rotation: the file that it was
// in looked damaged.
func TestRefusedFrameStaysAway(t *testing.T) {
	d, log := newLog(t)
	ok(t, log.Sync(add(t, log, "first")))
	d.fails(&crashfs.Late{Err: errInjected}, kinds("write"))
	if _, err := log.Append(2, []byte("refused")); !errors.Is(err, errInjected) || log.Err() != nil {
		t.Fatal(err)
	}
	d.Before(nil)
	rotate(t, log, "head")
	for seed := range uint64(20) {
		if k := d.cut(rand.New(rand.NewPCG(seed, 1))).replay(); k.rec.LastLSN != 1 || len(k.rec.Damage) > 0 {
			t.Fatalf("power cut %d: %+v", seed, k.rec)
		}
	}
}

// Create never writes into, or before, a file that is there.
func TestCreateRefusesUsedIDs(t *testing.T) {
	d := newDisk(t)
	d.create(5, 1, "keep")
	for _, bad := range []struct{ id, next uint64 }{{4, 1}, {5, 1}, {0, 1}, {6, 0}} {
		if _, err := Create(d.o, bad.id, bad.next, nil); err == nil {
			t.Errorf("file %d with LSN %d was made beside file 5", bad.id, bad.next)
		}
	}
	if k := d.replay(); k.snapshots[0] != "keep" || k.rec.LastFile != 5 {
		t.Errorf("%+v", k)
	}
}

func TestLimits(t *testing.T) {
	d, log := newLog(t)
	large := make([]byte, MaxPayload+1)
	_, _, rerr := log.Rotate(func(uint64) []byte { return large })
	_, aerr := log.Append(2, large)
	if !errors.Is(rerr, errTooLarge) || !errors.Is(aerr, errTooLarge) || log.Err() != nil {
		t.Fatalf("%v, %v, %v", rerr, aerr, log.Err())
	}
	for _, kind := range []uint8{0, KindSnapshot} {
		if _, err := log.Append(kind, nil); err == nil {
			t.Errorf("kind %d was appended", kind)
		}
	}
	if err := log.Sync(1); err == nil {
		t.Error("synced what was never appended")
	}
	must(log.Append(2, large[:MaxPayload]))(t)
	k := d.replay()
	if len(k.frames) != 1 || len(k.frames[0].Payload) != MaxPayload || len(k.rec.Damage) > 0 {
		t.Fatalf("%d frames, %+v", len(k.frames), k.rec)
	}
	for _, o := range []Options{{}, {Dir: "d", PreallocBytes: -1}, {Dir: "d", PreallocBytes: 1 << 40}} {
		if _, err := Replay(o, nil); err == nil || o.Validate() == nil {
			t.Errorf("%v was accepted", o)
		}
	}
}

// On a full disk the small state grows with what Append still takes, and the log is rotated then: whatever comes of that,
// what AppendReserved was promised is left afterwards, again and again.
func TestStateThatGrewLeavesTheReserve(t *testing.T) {
	const step = 64 << 10
	frame := strings.Repeat("f", 1000)
	for i := range 60 {
		first, frames := i%3*step/2, i/3*4
		t.Run(fmt.Sprint(first, " bytes, ", frames, " frames"), func(t *testing.T) {
			d := largeDisk(t)
			state := strings.Repeat("s", first)
			log := d.create(1, 1, state)
			for range frames {
				add(t, log, frame)
			}
			d.fill(0)
			for round := range 4 {
				for {
					if _, err := log.Append(2, []byte(frame)); errors.Is(err, vfs.ErrNoSpace) {
						break
					} else if err != nil {
						t.Fatal(err)
					}
					state += frame
				}
				_, _, err := log.Rotate(text(state))
				if err != nil && !errors.Is(err, vfs.ErrNoSpace) {
					t.Fatal(err)
				}
				if _, rerr := log.AppendReserved(3, make([]byte, step/3)); rerr != nil {
					t.Fatalf("round %d, a state of %d bytes: %v; rotation: %v", round, len(state), rerr, err)
				}
				ok(t, log.Remove(log.FileID())) // as a checkpoint does
				d.fill(step)                    // what was evicted came back
			}
		})
	}
}

// A rotation on a full disk without a spare goes on in the current file: then the files before it can go, and one of them is the
// spare of the next rotation.
func TestRotationInPlace(t *testing.T) {
	d, log := largeLog(t)
	add(t, log, "first")
	d.fill(0)
	for i, want := range []uint64{2, 2, 3, 3, 4} {
		id, lsn := rotate(t, log, fmt.Sprint("head ", i))
		if id != want || lsn != uint64(i+1) {
			t.Fatal(i, id, lsn)
		}
		if i%2 == 1 { // only now the checkpoint is done
			ok(t, log.Remove(id))
		}
		add(t, log, "more")
		k := d.cut(rand.New(rand.NewPCG(uint64(i), 1))).replay()
		if len(k.rec.Damage) > 0 || k.rec.LastLSN < lsn || k.snapshots[lsn] != fmt.Sprint("head ", i) {
			t.Fatalf("%+v", k)
		}
	}
}

// On a full disk what makes room leaves the room for one frame more: what says that it is durable.
func TestLeavesRoomForAFrame(t *testing.T) {
	for n := range 64 {
		d, log := newLog(t)
		d.fill(0)
		var err error
		for err == nil {
			_, err = log.AppendBefore(3, make([]byte, n), 10)
		}
		if !errors.Is(err, vfs.ErrNoSpace) || log.LastLSN() == 0 {
			t.Fatalf("payloads of %d bytes: %d frames, then %v", n, log.LastLSN(), err)
		}
		if _, err := log.AppendReserved(4, make([]byte, 10)); err != nil {
			t.Errorf("payloads of %d bytes: no room for what is to follow: %v", n, err)
		}
	}
}

// However exactly the last blocks of a full disk are filled, zeros follow the last frame: without them, the file would look cut there.
func TestZerosFollowTheLastFrame(t *testing.T) {
	for what, fill := range map[string]func(t *testing.T) (d *disk, room int64, put func(payload []byte) error){
		"a frame": func(t *testing.T) (*disk, int64, func([]byte) error) {
			d, log := newLog(t)
			d.fill(0)
			_, room := log.Room()
			return d, room, func(b []byte) error { _, err := log.AppendReserved(2, b); return err }
		},
		"the snapshot of a log that goes on": func(t *testing.T) (*disk, int64, func([]byte) error) {
			d, _ := stuck(t, 3)
			path, end := d.replay().end()
			room := must(d.Stat(path))(t).Size - end
			return d, room, func(b []byte) error { _, err := Create(d.o, 3, 5, b); return err }
		},
		"the head in a small spare": func(t *testing.T) (*disk, int64, func([]byte) error) {
			d := newDisk(t)
			d.write(d.o.sparePath(), 0, make([]byte, blockBytes))
			d.fill(0)
			return d, blockBytes - headerBytes, func(b []byte) error { _, err := Create(d.o, 1, 1, b); return err }
		},
		"the head of the next file in a small spare": func(t *testing.T) (*disk, int64, func([]byte) error) {
			d, log := largeLog(t)
			room := d.smallSpare(log) - headerBytes
			d.fails(errInjected, d.writesTo(1)) // or it would go on there
			return d, room, func(b []byte) error { _, _, err := log.Rotate(text(string(b))); return err }
		},
	} {
		t.Run(what, func(t *testing.T) {
			d, room, put := fill(t)
			err := vfs.ErrNoSpace
			for n := room - minFrame; errors.Is(err, vfs.ErrNoSpace); n -= 8 { // the first one fills it to the last byte
				err = put(make([]byte, n))
			}
			ok(t, err)
			if k := d.kill().replay(); k.rec.Torn || len(k.rec.Damage) > 0 {
				t.Errorf("%+v", k.rec)
			}
		})
	}
}

// writesTo are the writes to a log file.
func (d *disk) writesTo(id uint64) func(crashfs.Op) bool {
	return func(op crashfs.Op) bool { return op.Kind == "write" && logDir+"/"+op.Name == d.o.path(id) }
}

// A rotation that fails to go on in place and then finds a small spare accounts for what the try gave up.
func TestRotationAccountsForTheTry(t *testing.T) {
	d, log := largeLog(t)
	add(t, log, "sixteen bytes...")
	ok(t, log.Close())
	log = d.create(2, 2, "")
	add(t, log, "sixteen bytes...")
	d.smallSpare(log)
	d.fails(errInjected, d.writesTo(2))
	id, _ := rotate(t, log, "two")
	d.Before(nil)
	ok(t, log.Remove(id))
	if id != 3 || log.Bytes() != d.Used() {
		t.Errorf("file %d: %d bytes are accounted for, %d are used", id, log.Bytes(), d.Used())
	}
}
