package wal

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// What a failed write left is gone, however much it was, and the space is reserved anew; if it cannot be taken away, the
// log is poisoned.
func TestFailedWriteIsUndone(t *testing.T) {
	for part := range 200 {
		m := newMemFS()
		o := memOptions(m)
		log := must[*Log](t)(Create(o, 1, 1, nil))
		must[uint64](t)(log.Append(2, []byte("first")))
		fail := map[string]error{"write": errShort(part)}
		m.before = func(op, name string) error { return fail[op] }
		if _, err := log.Append(3, make([]byte, 200)); !errors.As(err, new(errShort)) || log.Err() != nil {
			t.Fatalf("%v", err)
		}
		clear(fail)
		must[uint64](t)(log.Append(2, nil))
		k := must[kept](t)(replayAll(memOptions(m.kill())))
		if len(k.frames) != 2 || k.frames[1].Kind != 2 || k.rec.Torn || len(k.rec.Damage) > 0 {
			t.Fatalf("part of %d bytes: %+v, %+v", part, k.frames, k.rec)
		}
		if info, err := m.Stat(o.path(1)); err != nil || info.Size < log.end+o.PreallocBytes/2 {
			t.Fatalf("%d bytes reserved, the end is %d", info.Size, log.end)
		}
		fail["write"], fail["truncate"] = errShort(part), errInjected
		if _, err := log.Append(3, make([]byte, 200)); !errors.Is(err, ErrPoisoned) || err != log.Err() {
			t.Fatalf("%v", err)
		}
	}
}

// Whenever the disk gets full, the log goes on in what it reserved: half a step, then the whole spare file, then it
// refuses without losing anything, then it goes on when there is room again.
func TestFullDisk(t *testing.T) {
	payload := []byte(strings.Repeat("evict", 40))
	const step = 64 << 10
	frames := step / int(frameBytes(uint32(frameHead+len(payload))))
	for before := 0; before < 2*frames; before += 13 {
		m := newMemFS()
		o := memOptions(m)
		o.PreallocBytes = step
		log := must[*Log](t)(Create(o, 1, 1, nil))
		for range before {
			must[uint64](t)(log.Append(2, payload))
		}
		fill := func() (n int) {
			for ; ; n++ {
				if _, err := log.AppendReserved(3, payload); err != nil {
					if !errors.Is(err, vfs.ErrNoSpace) || log.Err() != nil {
						t.Fatalf("append on a full disk: %v", err)
					}
					return n
				}
			}
		}
		m.limit = m.used()
		if n := fill(); n < frames/2-1 {
			t.Fatalf("%d frames into the current file after %d, want %d", n, before, frames/2)
		}
		if _, _, err := log.Rotate(text("spare")); err != nil {
			t.Fatalf("rotate into the spare: %v", err)
		}
		if n := fill(); n < frames-1 {
			t.Fatalf("%d frames into the spare, want about %d", n, frames)
		}
		if _, _, err := log.Rotate(text("none")); !errors.Is(err, vfs.ErrNoSpace) || log.Err() != nil {
			t.Fatalf("rotate without a spare: %v", err)
		}
		last := log.LastLSN()
		if err := log.Remove(2); err != nil { // evicting made room
			t.Fatal(err)
		}
		if lsn := must[uint64](t)(log.Append(2, nil)); lsn != last+1 {
			t.Fatalf("LSN %d after %d", lsn, last)
		}
		m.limit += step
		if _, _, err := log.Rotate(text("again")); err != nil {
			t.Fatal(err)
		}
		k := must[kept](t)(replayAll(memOptions(m.kill())))
		if k.rec.LastLSN != last+1 || len(k.rec.Damage) > 0 || k.rec.Torn {
			t.Fatalf("%+v", k.rec)
		}
	}
}

// Create never writes into, or before, a file that is there.
func TestCreateRefusesUsedIDs(t *testing.T) {
	m := newMemFS()
	o := memOptions(m)
	must[*Log](t)(Create(o, 5, 1, []byte("keep")))
	for _, id := range []uint64{4, 5} {
		if _, err := Create(o, id, 1, nil); !errors.Is(err, fs.ErrExist) {
			t.Errorf("file %d beside file 5: %v", id, err)
		}
	}
	if k := must[kept](t)(replayAll(o)); k.snapshots[0] != "keep" || k.rec.LastFile != 5 {
		t.Errorf("%+v", k)
	}
	for _, bad := range [][2]uint64{{0, 1}, {6, 0}} {
		if _, err := Create(o, bad[0], bad[1], nil); err == nil {
			t.Errorf("file %d with LSN %d was made", bad[0], bad[1])
		}
	}
}

func TestLimits(t *testing.T) {
	m := newMemFS()
	o := memOptions(m)
	log := must[*Log](t)(Create(o, 1, 1, nil))
	large := make([]byte, MaxPayload+1)
	_, _, rerr := log.Rotate(func(uint64) []byte { return large })
	_, aerr := log.Append(2, large)
	if !errors.Is(rerr, ErrTooLarge) || !errors.Is(aerr, ErrTooLarge) || log.Err() != nil {
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
	must[uint64](t)(log.Append(2, large[:MaxPayload]))
	k := must[kept](t)(replayAll(o))
	if len(k.frames) != 1 || len(k.frames[0].Payload) != MaxPayload || len(k.rec.Damage) > 0 {
		t.Fatalf("%d frames, %+v", len(k.frames), k.rec)
	}
	for _, o := range []Options{{}, {Dir: "d", PreallocBytes: -1}, {Dir: "d", PreallocBytes: 1 << 40}} {
		if _, err := Replay(o, nil); err == nil || o.Validate() == nil {
			t.Errorf("%v was accepted", o)
		}
	}
}

// A spare that could not be reserved is reserved at the next append that finds room.
func TestSpareIsTriedAgain(t *testing.T) {
	m := newMemFS()
	o := memOptions(m)
	log := must[*Log](t)(Create(o, 1, 1, nil))
	m.limit = m.used()
	if _, _, err := log.Rotate(text("")); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Stat(o.sparePath()); err == nil {
		t.Fatal("there is a spare on a full disk")
	}
	m.limit = 0
	must[uint64](t)(log.Append(2, nil))
	if info, err := m.Stat(o.sparePath()); err != nil || info.Size < o.PreallocBytes {
		t.Fatalf("spare: %+v, %v", info, err)
	}
	var sum int64
	for name := range m.names {
		info, _ := m.Stat(name)
		sum += info.Allocated
	}
	if got := log.Bytes(); got != sum {
		t.Fatalf("Bytes is %d, the files take %d", got, sum)
	}
}
