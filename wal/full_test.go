package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// stuck is a log whose process was killed on a full disk, with no spare left, after that many frames in its newest file.
func stuck(t *testing.T, step int64, frames int) (*memFS, Options, map[uint64]wrote) {
	t.Helper()
	m := newMemFS()
	o := memOptions(m)
	o.PreallocBytes = step
	log := must[*Log](t)(Create(o, 1, 1, []byte("one")))
	written := map[uint64]wrote{}
	put := func() {
		w := wrote{2, fmt.Sprint("frame ", log.LastLSN()+1, strings.Repeat(".", int(log.LastLSN()*37%500)))}
		written[must[uint64](t)(log.AppendReserved(w.kind, []byte(w.payload)))] = w
	}
	put()
	m.limit = m.used()
	if _, _, err := log.Rotate(text("two")); err != nil {
		t.Fatal(err)
	}
	for range frames {
		put()
	}
	k := m.kill()
	k.limit = k.used()
	o.FS = k
	return k, o, written
}

// After a kill on a full disk without a spare, the log goes on in the newest file; what it says then survives further kills and
// power cuts, and so does all before. Frames that make room find space there that others leave.
func TestGoesOnInTheNewestFile(t *testing.T) {
	for frames := range 60 {
		m, o, written := stuck(t, 64<<10, frames)
		rnd := rand.New(rand.NewPCG(uint64(frames), 1))
		for round := range 4 {
			used := m.used()
			k := must[kept](t)(replayAll(o))
			log := must[*Log](t)(CreateLater(o, k.rec.LastFile+1, k.rec.LastLSN+1, func() []byte { return []byte(fmt.Sprint("round ", round)) }))
			for i := range 5 {
				w := wrote{3, fmt.Sprint("round ", round, " frame ", i, strings.Repeat("x", rnd.IntN(300)))}
				lsn, err := log.AppendReserved(w.kind, []byte(w.payload))
				if err != nil {
					t.Fatalf("%d frames, round %d: %v", frames, round, err)
				}
				written[lsn] = w
				if i == 2 {
					if err := log.Sync(lsn); err != nil {
						t.Fatal(err)
					}
				}
			}
			if m.used() != used {
				t.Fatalf("%d bytes were used, now %d: blocks were given up on the way", used, m.used())
			}
			least, last := log.DurableLSN(), log.LastLSN()
			if round%2 == 0 {
				m = m.kill()
			} else {
				m = m.powerCut(rnd)
			}
			m.limit = m.used()
			o.FS = m
			k = must[kept](t)(replayAll(o))
			if err := errors.Join(k.same(written), k.consecutive()); err != nil || len(k.rec.Damage) > 0 {
				t.Fatalf("%d frames, round %d: %v, %v", frames, round, err, k.rec.Damage)
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
	m, o, written := stuck(t, 64<<10, 3)
	k := must[kept](t)(replayAll(o))
	last := k.frames[len(k.frames)-1]
	log := must[*Log](t)(CreateLater(o, k.rec.LastFile+1, 5, func() []byte { return []byte("snap") }))
	written[5] = wrote{3, "behind it"}
	must[uint64](t)(log.AppendReserved(3, []byte("behind it")))
	m = m.kill()
	o.FS = m
	f := must[vfs.File](t)(m.Open(last.File, false))
	start := last.Offset + frameBytes(uint32(frameHead+len(last.Payload)))
	for at := start; at < start+frameBytes(frameHead+4); at++ {
		var old [1]byte
		if _, err := f.ReadAt(old[:], at); err != nil {
			t.Fatal(err)
		}
		for bit := range 8 {
			if _, err := f.WriteAt([]byte{old[0] ^ 1<<bit}, at); err != nil {
				t.Fatal(err)
			}
			k := must[kept](t)(replayAll(o))
			if err := k.same(written); err != nil || k.rec.LastLSN != 5 || k.rec.Torn || len(k.frames) != len(written) {
				t.Fatalf("bit %d of byte %d: %v, %+v", bit, at-start, err, k.rec)
			}
			if len(k.rec.Damage) == 0 && k.snapshots[4] != "snap" {
				t.Fatalf("bit %d of byte %d: not named, and the snapshot is %q", bit, at-start, k.snapshots[4])
			}
		}
		if _, err := f.WriteAt(old[:], at); err != nil {
			t.Fatal(err)
		}
	}
}

// What a crash tore behind the end is gone before anything is written there: an old frame cannot come to follow a new one.
func TestGoesOnOverATornEnd(t *testing.T) {
	m, o, written := stuck(t, 64<<10, 3)
	k := must[kept](t)(replayAll(o))
	last := k.frames[len(k.frames)-1]
	f := must[vfs.File](t)(m.Open(last.File, false))
	end := last.Offset + frameBytes(uint32(frameHead+len(last.Payload)))
	seed := frameSeed(testUUID)
	// Frame 5 is torn, frame 6 behind it is whole, as a power cut may leave them.
	torn := appendFrame(nil, seed, frameHeader{kind: 2, file: 2, offset: uint64(end), lsn: 5, durable: 1}, []byte("five"))
	snap := frameBytes(frameHead + 4)
	at := end + snap + int64(len(torn))
	whole := appendFrame(nil, seed, frameHeader{kind: 2, file: 2, offset: uint64(at), lsn: 6, durable: 1}, []byte("six"))
	if _, err := f.WriteAt([]byte("torn"), end); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(whole, at); err != nil {
		t.Fatal(err)
	}
	k = must[kept](t)(replayAll(o))
	if k.rec.LastLSN != 4 || !k.rec.Torn {
		t.Fatalf("%+v", k.rec)
	}
	log := must[*Log](t)(CreateLater(o, 3, 5, func() []byte { return []byte("snap") }))
	written[5] = wrote{3, "new!"}
	must[uint64](t)(log.AppendReserved(3, []byte("new!")))
	if log.FileID() != 2 || log.end != at {
		t.Fatalf("file %d, end %d, want %d", log.FileID(), log.end, at)
	}
	o.FS = m.kill()
	k = must[kept](t)(replayAll(o))
	if err := k.same(written); err != nil || k.rec.LastLSN != 5 || len(k.rec.Damage) > 0 || k.snapshots[4] != "snap" {
		t.Fatalf("%v, %+v, %v", err, k.rec, k.snapshots)
	}
}

// The log does not go on in a file whose end it does not know.
func TestDoesNotGoOnInADamagedFile(t *testing.T) {
	m, o, _ := stuck(t, 64<<10, 3)
	k := must[kept](t)(replayAll(o))
	f := must[vfs.File](t)(m.Open(k.frames[2].File, false))
	if _, err := f.WriteAt([]byte{0xff}, k.frames[2].Offset+50); err != nil {
		t.Fatal(err)
	}
	log := must[*Log](t)(CreateLater(o, 3, 5, func() []byte { return nil }))
	if _, err := log.AppendReserved(2, nil); !errors.Is(err, vfs.ErrNoSpace) || log.Err() != nil {
		t.Fatalf("%v, %v", err, log.Err())
	}
}

// A spare that a kill left is used as it is, whatever of ours it holds: its blocks are never given up.
func TestLeftoverSpareIsUsed(t *testing.T) {
	m := newMemFS()
	o := memOptions(m)
	log := must[*Log](t)(Create(o, 1, 1, []byte("one")))
	must[uint64](t)(log.Append(2, []byte("first")))
	f := must[vfs.File](t)(m.Open(o.sparePath(), false))
	must[int](t)(f.WriteAt(ownBytes(100), 0))
	for off := int64(1); off < 8; off++ {
		if _, err := f.WriteAt([]byte("a longer head than the next one"), off*1000); err != nil {
			t.Fatal(err)
		}
	}
	m = m.kill()
	m.limit = m.used()
	m.before = func(op, name string) error {
		if op == "remove" || op == "truncate" {
			return errInjected
		}
		return nil
	}
	o.FS = m
	log = must[*Log](t)(Create(o, 2, 2, []byte("two")))
	must[uint64](t)(log.AppendReserved(2, nil))
	damaged, torn, err := verify(o)
	if err != nil || len(damaged)+len(torn) > 0 || log.FileID() != 2 {
		t.Fatal(log.FileID(), damaged, torn, err)
	}
}

// What a checkpoint does not need any more becomes the spare, where there is none.
func TestOldFileBecomesTheSpare(t *testing.T) {
	m := newMemFS()
	o := memOptions(m)
	log := must[*Log](t)(Create(o, 1, 1, nil))
	must[uint64](t)(log.Append(2, []byte("first")))
	m.limit = m.used()
	for id := uint64(2); id < 20; id++ {
		if got, _, err := log.Rotate(text("head")); err != nil || got != id {
			t.Fatal(got, err)
		}
		if err := log.Remove(id); err != nil {
			t.Fatal(err)
		}
		if m.used() != m.limit || log.Bytes() != m.limit {
			t.Fatalf("file %d: %d bytes of %d are used, Bytes is %d", id, m.used(), m.limit, log.Bytes())
		}
		must[uint64](t)(log.AppendReserved(2, []byte("more")))
		k := must[kept](t)(replayAll(memOptions(m.kill())))
		if len(k.rec.Damage) > 0 || k.rec.Torn || k.rec.LastLSN != id || k.rec.LastFile != id {
			t.Fatalf("%+v", k.rec)
		}
	}
}

// A rotation on a full disk without a spare goes on in the current file: then the files before it can go, and one of them is the
// spare of the next rotation.
func TestRotationInPlace(t *testing.T) {
	m := newMemFS()
	o := memOptions(m)
	o.PreallocBytes = 64 << 10
	log := must[*Log](t)(Create(o, 1, 1, nil))
	must[uint64](t)(log.Append(2, []byte("first")))
	m.limit = m.used()
	for i, want := range []uint64{2, 2, 3, 3, 4} {
		id, lsn, err := log.Rotate(text(fmt.Sprint("head ", i)))
		if err != nil || id != want || lsn != uint64(i+1) {
			t.Fatal(i, id, lsn, err)
		}
		if i%2 == 1 { // only now the checkpoint is done
			if err := log.Remove(id); err != nil {
				t.Fatal(err)
			}
		}
		must[uint64](t)(log.Append(2, []byte("more")))
		k := must[kept](t)(replayAll(memOptions(m.powerCut(rand.New(rand.NewPCG(uint64(i), 1))))))
		if len(k.rec.Damage) > 0 || k.rec.LastLSN < lsn || k.snapshots[lsn] != fmt.Sprint("head ", i) {
			t.Fatalf("%+v", k)
		}
	}
}

// On a full disk what makes room leaves the room for one frame more: what says that it is durable.
func TestLeavesRoomForAFrame(t *testing.T) {
	for n := range 64 {
		m := newMemFS()
		o := memOptions(m)
		log := must[*Log](t)(Create(o, 1, 1, nil))
		m.limit = m.used()
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
