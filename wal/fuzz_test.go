package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/fuzzkit"
)

// seal makes the checksums of a log file fit, and, if places is set, lets its frames name their own places.
func seal(b []byte, id uint64, places bool) {
	if len(b) < headerBytes {
		return
	}
	if places {
		copy(b, magic)
		binary.LittleEndian.PutUint32(b[8:], version)
		binary.LittleEndian.PutUint32(b[12:], 0)
		copy(b[16:], testUUID[:])
		binary.LittleEndian.PutUint64(b[32:], id)
	}
	resum(b)
	for off := int64(headerBytes); off+minFrame <= int64(len(b)); {
		f := b[off:]
		n := frameBytes(binary.LittleEndian.Uint32(f) & 0xffff)
		if n < minFrame || n > int64(len(f)) {
			return
		}
		if places {
			binary.LittleEndian.PutUint64(f[8:], id)
			binary.LittleEndian.PutUint64(f[16:], uint64(off))
		}
		binary.LittleEndian.PutUint64(f[n-frameTail:], checksum(frameSeed(testUUID), f[:n-frameTail]))
		off += n
	}
}

// Whatever is in the files, behind checksums that fit or not: no panic, LSNs in order, nothing handed over that does not stand
// there, and no more memory than the files account for. Verify and a second Replay agree with the first, and so does the log
// after it was recovered: what was read stays, and goes on with what is written then.
func FuzzReplay(f *testing.F) {
	d := newDisk(f)
	log := d.create(1, 1, "state 1")
	for i := range 6 {
		lsn := must(log.Append(uint8(2+i), []byte("payload "[:i])))(f)
		if i%3 == 1 {
			ok(f, log.Sync(lsn))
		}
		if i == 3 {
			rotate(f, log, "state 2")
		}
	}
	one, two := used(d.read(d.o.path(1))), used(d.read(d.o.path(2)))
	edit := func(b []byte, off int, v uint64) []byte {
		b = bytes.Clone(b)
		binary.LittleEndian.PutUint64(b[off:], v)
		return b
	}
	fuzzkit.Seeds(f,
		[]any{one, two, uint8(0)},
		[]any{one[:len(one)-9], two, uint8(0)},
		[]any{one, two[:headerBytes+20], uint8(1)},
		[]any{append(make([]byte, headerBytes), one[headerBytes:]...), []byte{}, uint8(0)},
		[]any{[]byte(magic), bytes.Repeat([]byte{0xff}, 200), uint8(2)},
		[]any{edit(one, 40, math.MaxUint64), two, uint8(1)},                  // first LSN
		[]any{edit(one, headerBytes+24, math.MaxUint64-1), two, uint8(1)},    // LSN of the snapshot
		[]any{edit(two, headerBytes+32, math.MaxUint64), []byte{}, uint8(3)}, // durable
		[]any{edit(one, headerBytes, 1<<32-1), two, uint8(0)},                // length
	)
	f.Fuzz(func(t *testing.T, one, two []byte, how uint8) {
		if len(one)+len(two) > 1<<16 {
			return
		}
		one, two = bytes.Clone(one), bytes.Clone(two)
		if how&1 != 0 {
			seal(one, 1, how&2 != 0)
			seal(two, 2, how&2 != 0)
		}
		d := newDisk(t)
		d.write(d.o.path(1), 0, one)
		d.write(d.o.path(2), 0, two)
		fuzzkit.Bounded(t, 4<<20+uint64(64*(len(one)+len(two))), func() { lawfulReplay(t, d) })
	})
}

func lawfulReplay(t *testing.T, d *disk) {
	o := d.o
	err := d.stands()
	var found []*damage.Error
	if verr := Verify(o, func(e *damage.Error) { found = append(found, e) }, nil); (verr == nil) != (err == nil) {
		t.Fatalf("Replay: %v; Verify: %v", err, verr)
	}
	for _, e := range found {
		if e.File == "" || e.Offset < 0 || !errors.Is(e, damage.ErrCorrupt) {
			t.Fatalf("damage without a place: %v", e)
		}
	}
	if err != nil {
		if !errors.Is(err, errMagic) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrForeign) {
			t.Fatal(err)
		}
		return
	}
	before := d.replay()
	if len(before.rec.Damage) > len(found) {
		t.Fatalf("Replay reports %v, Verify %v", before.rec.Damage, found)
	}
	if before.rec.LastFile == math.MaxUint64 || before.rec.LastLSN > math.MaxUint64-2 {
		return // there is no number left
	}
	log := d.create(before.rec.LastFile+1, before.rec.LastLSN+1, "recovered")
	lsn := must(log.Append(77, []byte("after")))(t)
	ok(t, log.Close())
	after := d.replay()
	if n := len(after.frames); n == 0 || after.frames[n-1].LSN != lsn || string(after.frames[n-1].Payload) != "after" || after.rec.Torn {
		t.Fatalf("what was written after recovery is not read: %+v", after.rec)
	}
	if len(before.rec.Damage) > 0 {
		return // forged frames may lie between those that the next file's beginning proves to be lost
	}
	if n := len(before.frames); len(after.frames) != n+1 || len(after.rec.Damage) > 0 {
		t.Fatalf("%d frames were read, and %d when one more was written: %+v", n, len(after.frames), after.rec)
	}
	for i, f := range before.frames {
		if g := after.frames[i]; f.LSN != g.LSN || f.Kind != g.Kind || !bytes.Equal(f.Payload, g.Payload) {
			t.Fatalf("frame %+v became %+v", f, g)
		}
	}
}
