package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
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
	m := newMemFS()
	o := memOptions(m)
	log := must[*Log](f)(Create(o, 1, 1, []byte("state 1")))
	for i := range 6 {
		lsn := must[uint64](f)(log.Append(uint8(2+i), []byte("payload "[:i])))
		if i%3 == 1 {
			if err := log.Sync(lsn); err != nil {
				f.Fatal(err)
			}
		}
		if i == 3 {
			if _, _, err := log.Rotate(text("state 2")); err != nil {
				f.Fatal(err)
			}
		}
	}
	one := bytes.TrimRight(m.names[o.path(1)].now, "\x00")
	two := bytes.TrimRight(m.names[o.path(2)].now, "\x00")
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
		m := newMemFS()
		o := memOptions(m)
		m.names[o.path(1)], m.names[o.path(2)] = &memNode{now: one}, &memNode{now: two}
		fuzzkit.Bounded(t, 4<<20+uint64(64*(len(one)+len(two))), func() { lawfulReplay(t, o) })
	})
}

// stands is standing, but for what a reader ignores: reserved bytes and padding.
func stands(o Options) error {
	fs := o.FS.(*memFS)
	var last uint64
	rec, err := Replay(o, func(f Frame) error {
		b := fs.names[f.File].now
		if f.Offset < headerBytes || f.Offset+frameHead+int64(len(f.Payload)) > int64(len(b)) {
			return fmt.Errorf("%s offset %d: a frame of %d bytes in %d", f.File, f.Offset, len(f.Payload), len(b))
		}
		id, _ := parseName(f.File[len(o.Dir)+1:])
		h := decodeFrameHeader(b[f.Offset:])
		switch {
		case h.kind != f.Kind || h.lsn != f.LSN || h.file != id || h.offset != uint64(f.Offset) || f.Kind == 0,
			!bytes.Equal(f.Payload, b[f.Offset+frameHead:f.Offset+int64(h.length)]):
			return fmt.Errorf("%s offset %d does not hold %+v", f.File, f.Offset, f)
		case f.Kind != KindSnapshot && f.Offset == headerBytes:
			return fmt.Errorf("%s offset %d: kind %d", f.File, f.Offset, f.Kind)
		case f.Kind != KindSnapshot && f.LSN <= last:
			return fmt.Errorf("LSN %d after %d", f.LSN, last)
		case f.Kind != KindSnapshot:
			last = f.LSN
		}
		return nil
	})
	if err == nil && rec.LastLSN < last {
		err = fmt.Errorf("LastLSN %d after frame %d", rec.LastLSN, last)
	}
	return err
}

func lawfulReplay(t *testing.T, o Options) {
	err := stands(o)
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
		if !errors.Is(err, ErrMagic) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrForeign) {
			t.Fatal(err)
		}
		return
	}
	before, err := replayAll(o)
	if err != nil {
		t.Fatal(err)
	}
	if len(before.rec.Damage) > len(found) {
		t.Fatalf("Replay reports %v, Verify %v", before.rec.Damage, found)
	}
	if before.rec.LastFile == math.MaxUint64 || before.rec.LastLSN > math.MaxUint64-2 {
		return // there is no number left
	}
	log, err := Create(o, before.rec.LastFile+1, before.rec.LastLSN+1, []byte("recovered"))
	if err != nil {
		t.Fatal(err)
	}
	lsn, err := log.Append(77, []byte("after"))
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := replayAll(o)
	if err != nil {
		t.Fatalf("recovered: %v", err)
	}
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
