package wal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// sample is a small log of two files: frames 1 to 4 with 2 synced, frames 5 to 9 with 7 synced.
func sample(t testing.TB) (*memFS, map[uint64]wrote) {
	t.Helper()
	m := newMemFS()
	log := must[*Log](t)(Create(memOptions(m), 1, 1, []byte("state 1")))
	written := map[uint64]wrote{}
	put := func(sync bool) {
		lsn := log.LastLSN() + 1
		w := wrote{kind: uint8(2 + lsn%3), payload: strings.Repeat(fmt.Sprint(lsn), int(lsn*lsn))}
		must[uint64](t)(log.Append(w.kind, []byte(w.payload)))
		written[lsn] = w
		if sync {
			if err := log.Sync(lsn); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, sync := range []bool{false, true, false, false} {
		put(sync)
	}
	if _, _, err := log.Rotate(text("state 2")); err != nil {
		t.Fatal(err)
	}
	for _, sync := range []bool{false, false, true, false, false} {
		put(sync)
	}
	m = m.kill() // not Close, which syncs
	return m, written
}

// sampleDurable is the LSN that sample's last frames say to have been durable.
const sampleDurable = 7

// lawful checks what must hold for sample's log after any change to its bytes, and returns what came back.
func lawful(t testing.TB, m *memFS, written map[uint64]wrote, what string) kept {
	t.Helper()
	k, err := replayAll(memOptions(m))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if err := k.same(written); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for lsn, s := range k.snapshots {
		if want := map[uint64]string{0: "state 1", 4: "state 2"}[lsn]; s != want {
			t.Fatalf("%s: snapshot %q at LSN %d, want %q", what, s, lsn, want)
		}
	}
	have := map[uint64]bool{}
	for _, f := range k.frames {
		have[f.LSN] = true
	}
	for lsn := range written {
		if !have[lsn] && len(k.rec.Damage) == 0 && (lsn <= sampleDurable || !k.rec.Torn) {
			t.Fatalf("%s: frame %d is missing, but neither damage nor a torn end is reported", what, lsn)
		}
	}
	if len(k.snapshots) < 2 && len(k.rec.Damage) == 0 {
		t.Fatalf("%s: a snapshot is missing without damage", what)
	}
	return k
}

// Whatever bit is wrong: no wrong frame, nothing lost that is not accounted for, and Verify sees it.
func TestEveryBitFlip(t *testing.T) {
	m, written := sample(t)
	for id := uint64(1); id <= 2; id++ {
		n := m.names[memOptions(m).path(id)]
		used := len(bytes.TrimRight(n.now, "\x00"))
		for bit := range len(n.now) * 8 {
			if bit/8 > used+64 && bit%509 != 0 {
				continue // zeros are alike
			}
			what := fmt.Sprintf("file %d bit %d of byte %d", id, bit%8, bit/8)
			n.now[bit/8] ^= 1 << (bit % 8)
			k := lawful(t, m, written, what)
			if len(k.rec.Damage) == 0 && !anyTorn(k.rec) {
				t.Fatalf("%s: nothing reported", what)
			}
			if lost := len(written) - len(k.frames); bit/8 < 1000 && id == 1 && lost > 1 {
				t.Fatalf("%s: %d frames lost to one bit", what, lost)
			}
			if damaged, torn, err := verify(memOptions(m)); err != nil || len(damaged)+len(torn) == 0 {
				t.Fatalf("%s: Verify: %v, reports nothing", what, err)
			}
			n.now[bit/8] ^= 1 << (bit % 8)
		}
	}
}

func anyTorn(r Recovered) bool {
	return slices.ContainsFunc(r.Files, func(f FileInfo) bool { return f.Torn })
}

// A file that lost its end: the last one ends the log there, torn even if whole frames are left; in any other the missing frames
// are damage.
func TestEveryLength(t *testing.T) {
	m, written := sample(t)
	o := memOptions(m)
	for id := uint64(1); id <= 2; id++ {
		n := m.names[o.path(id)]
		whole := n.now
		used := len(bytes.TrimRight(whole, "\x00"))
		for size := range len(whole) {
			if size > used+64 && size%61 != 0 {
				continue // zeros are alike
			}
			n.now = whole[:size]
			k := must[kept](t)(replayAll(o))
			if err := k.same(written); err != nil {
				t.Fatalf("file %d cut to %d bytes: %v", id, size, err)
			}
			all := len(k.frames) == len(written) && len(k.snapshots) == 2
			damaged := len(k.rec.Damage) > 0
			switch {
			case id == 1 && damaged == all, id == 2 && damaged && len(k.snapshots) == 2:
				t.Fatalf("file %d cut to %d bytes: %d frames, damage %v", id, size, len(k.frames), k.rec.Damage)
			case id == 2 && !damaged && k.rec.Torn == (all && size >= used+tailBytes):
				t.Fatalf("file %d of %d bytes cut to %d: %d frames, torn %t", id, used, size, len(k.frames), k.rec.Torn)
			case id == 2 && k.rec.LastLSN != uint64(len(k.frames)):
				t.Fatalf("file %d cut to %d bytes: %d frames, %+v", id, size, len(k.frames), k.rec)
			}
		}
		n.now = whole
	}
}

// A damaged frame is lost alone where something shows that it had been durable, and ends the log where nothing does.
func TestRotIsToldFromATornEnd(t *testing.T) {
	for lsn := uint64(1); lsn <= 9; lsn++ {
		m, written := sample(t)
		o := memOptions(m)
		k := must[kept](t)(replayAll(o))
		f := k.frames[lsn-1]
		m.names[f.File].now[f.Offset+5] ^= 1 // a reserved byte
		k = lawful(t, m, written, f.File)
		if lsn <= sampleDurable {
			if k.rec.Torn || len(k.rec.Damage) != 1 || len(k.frames) != 8 || k.rec.LastLSN != 9 {
				t.Errorf("frame %d: %d frames, %+v", lsn, len(k.frames), k.rec)
				continue
			}
			d := k.rec.Damage[0]
			if d.File != f.File || d.Offset != f.Offset || d.Expected == "" || d.Found == "" {
				t.Errorf("frame %d at %s offset %d: reported as %v", lsn, f.File, f.Offset, d)
			}
		} else if !k.rec.Torn || len(k.rec.Damage) != 0 || k.rec.LastLSN != lsn-1 {
			t.Errorf("frame %d: %d frames, %+v", lsn, len(k.frames), k.rec)
		}
	}
}

// Frames behind a torn one stay dead when the log has gone on in another file, though their bytes are still there.
func TestFramesBehindATornOneStayDead(t *testing.T) {
	m, written := sample(t)
	o := memOptions(m)
	k := must[kept](t)(replayAll(o))
	torn := k.frames[7] // frame 8; 9 is whole behind it
	m.names[torn.File].now[torn.Offset+50] ^= 1
	k = lawful(t, m, written, "torn")
	if k.rec.LastLSN != 7 {
		t.Fatalf("%+v", k.rec)
	}
	log := must[*Log](t)(Create(o, k.rec.LastFile+1, 8, nil))
	delete(written, 9)
	for lsn := uint64(8); lsn < 11; lsn++ {
		written[lsn] = wrote{200, fmt.Sprint("again ", lsn)}
		must[uint64](t)(log.Append(200, []byte(written[lsn].payload)))
		if err := log.Sync(lsn); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		k = must[kept](t)(replayAll(o))
		if err := errors.Join(k.same(written), k.consecutive()); err != nil || len(k.frames) != 10 || len(k.rec.Damage) > 0 || k.rec.Torn {
			t.Fatalf("%v, %d frames, %+v", err, len(k.frames), k.rec)
		}
		must[*Log](t)(Create(o, k.rec.LastFile+1, k.rec.LastLSN+1, nil))
	}
	// Not even when the frame before the torn one rots.
	m.names[torn.File].now[torn.Offset-1] ^= 1
	delete(written, 7)
	k = must[kept](t)(replayAll(o))
	if err := k.same(written); err != nil || len(k.frames) != 9 || len(k.rec.Damage) != 1 || k.rec.LastLSN != 10 {
		t.Fatalf("%v, %d frames, %+v", err, len(k.frames), k.rec)
	}
	// And not when the file that went on is lost.
	m.names[torn.File].now[torn.Offset-1] ^= 1
	if err := m.Remove(o.path(3)); err != nil {
		t.Fatal(err)
	}
	k = must[kept](t)(replayAll(o))
	if len(k.frames) != 7 || len(k.rec.Damage) != 1 || k.rec.Damage[0].File != o.path(3) || k.rec.LastLSN != 10 {
		t.Fatalf("%d frames, %+v", len(k.frames), k.rec)
	}
}

func TestMissingFilesAreDamage(t *testing.T) {
	m := newMemFS()
	o := memOptions(m)
	log := must[*Log](t)(Create(o, 5, 100, nil))
	for range 3 {
		must[uint64](t)(log.Append(2, []byte("x")))
		if _, _, err := log.Rotate(text("")); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Remove(o.path(6)); err != nil {
		t.Fatal(err)
	}
	k := must[kept](t)(replayAll(o))
	if len(k.frames) != 2 || k.frames[0].LSN != 100 || k.frames[1].LSN != 102 {
		t.Fatalf("frames %+v", k.frames)
	}
	if d := k.rec.Damage; len(d) != 1 || d[0].File != o.path(6) || !strings.Contains(d[0].Error(), "frames 101 to 101") {
		t.Fatalf("damage %v", d)
	}
}

// Any mixture of good frames in any order of any files, spoilt at random, is read without panic and in LSN order, and
// every frame handed over stands in the file as it is.
func TestReplayOfAnyFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMemFS()
		o := memOptions(m)
		seed := frameSeed(o.UUID)
		files := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 6), 1, 4, rapid.ID).Draw(t, "files")
		for _, id := range files {
			b := appendHeader(nil, fileHeader{uuid: o.UUID, id: id, first: rapid.Uint64Range(1, 12).Draw(t, "first")})
			for range rapid.IntRange(0, 8).Draw(t, "frames") {
				b = appendFrame(b, seed, frameHeader{
					kind: rapid.SampledFrom([]uint8{1, 1, 2, 9}).Draw(t, "kind"), file: id, offset: uint64(len(b)),
					lsn: rapid.Uint64Range(0, 16).Draw(t, "lsn"), durable: rapid.Uint64Range(0, 16).Draw(t, "durable"),
				}, rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "payload"))
			}
			b = append(b, make([]byte, rapid.IntRange(0, 200).Draw(t, "rest"))...)
			for range rapid.IntRange(0, 3).Draw(t, "flips") {
				b[rapid.IntRange(0, len(b)-1).Draw(t, "byte")] ^= rapid.Byte().Draw(t, "xor")
			}
			m.names[o.path(id)] = &memNode{now: b[:rapid.IntRange(len(b)/2, len(b)).Draw(t, "size")]}
		}
		if err := standing(o); err != nil && !errors.Is(err, ErrMagic) {
			t.Fatal(err)
		}
	})
}

// standing replays any bytes and checks that what is handed over stands there, in order.
func standing(o Options) error {
	m := o.FS.(*memFS)
	var last, frames uint64
	rec, err := Replay(o, func(f Frame) error {
		b := m.names[f.File].now[f.Offset:]
		h := decodeFrameHeader(b)
		id, _ := parseName(f.File[len(o.Dir)+1:])
		again := appendFrame(nil, frameSeed(o.UUID), frameHeader{
			kind: f.Kind, file: id, offset: uint64(f.Offset), lsn: f.LSN, durable: h.durable,
		}, f.Payload)
		if string(b[:len(again)]) != string(again) {
			return fmt.Errorf("%s offset %d does not hold frame %d", f.File, f.Offset, f.LSN)
		}
		if f.Kind != KindSnapshot {
			frames++
			if f.LSN <= last {
				return fmt.Errorf("LSN %d after %d", f.LSN, last)
			}
			last = f.LSN
		}
		return nil
	})
	if err == nil && rec.LastLSN < last && frames > 0 {
		err = fmt.Errorf("LastLSN %d after frame %d", rec.LastLSN, last)
	}
	return err
}
