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
func sample(t testing.TB) (*disk, map[uint64]wrote) {
	t.Helper()
	d := newDisk(t)
	log := d.create(1, 1, "state 1")
	written := map[uint64]wrote{}
	put := func(sync bool) {
		lsn := log.LastLSN() + 1
		w := wrote{kind: uint8(2 + lsn%3), payload: strings.Repeat(fmt.Sprint(lsn), int(lsn*lsn))}
		must(log.Append(w.kind, []byte(w.payload)))(t)
		written[lsn] = w
		if sync {
			ok(t, log.Sync(lsn))
		}
	}
	for _, sync := range []bool{false, true, false, false} {
		put(sync)
	}
	rotate(t, log, "state 2")
	for _, sync := range []bool{false, false, true, false, false} {
		put(sync)
	}
	return d.kill(), written // not Close, which syncs
}

// sampleDurable is the LSN that sample's last frames say to have been durable.
const sampleDurable = 7

// lawful checks what must hold for sample's log after any change to its bytes, and returns what came back.
func lawful(t testing.TB, d *disk, written map[uint64]wrote, what string) kept {
	t.Helper()
	k, err := replayAll(d.o)
	if err == nil {
		err = k.same(written)
	}
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for lsn, s := range k.snapshots {
		if want := map[uint64]string{0: "state 1", 4: "state 2"}[lsn]; s != want {
			t.Fatalf("%s: snapshot %q at LSN %d, want %q", what, s, lsn, want)
		}
	}
	have := k.lsns()
	for lsn := range written {
		if !slices.Contains(have, lsn) && len(k.rec.Damage) == 0 && (lsn <= sampleDurable || !k.rec.Torn) {
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
	d, written := sample(t)
	for id := uint64(1); id <= 2; id++ {
		path := d.o.path(id)
		whole := d.read(path)
		for bit := range len(whole) * 8 {
			off := int64(bit / 8)
			if bit/8 > len(used(whole))+64 && bit%509 != 0 {
				continue // zeros are alike
			}
			what := fmt.Sprintf("file %d bit %d of byte %d", id, bit%8, off)
			d.write(path, off, []byte{whole[off] ^ 1<<(bit%8)})
			k := lawful(t, d, written, what)
			if torn := func(f FileInfo) bool { return f.Torn }; len(k.rec.Damage) == 0 && !slices.ContainsFunc(k.rec.Files, torn) {
				t.Fatalf("%s: nothing reported", what)
			}
			if lost := len(written) - len(k.frames); off < 1000 && id == 1 && lost > 1 {
				t.Fatalf("%s: %d frames lost to one bit", what, lost)
			}
			if damaged, torn, err := verify(d.o); err != nil || len(damaged)+len(torn) == 0 {
				t.Fatalf("%s: Verify: %v, reports nothing", what, err)
			}
			d.write(path, off, whole[off:off+1])
		}
	}
}

// A file that lost its end: the last one ends the log there, torn even if whole frames are left; in any other the missing frames
// are damage.
func TestEveryLength(t *testing.T) {
	d, written := sample(t)
	for id := uint64(1); id <= 2; id++ {
		path := d.o.path(id)
		whole := d.read(path)
		end := len(used(whole))
		for size := range len(whole) {
			if size > end+64 && size%61 != 0 {
				continue // zeros are alike
			}
			d.resize(path, int64(size))
			k := d.replay()
			what := fmt.Sprintf("file %d of %d bytes cut to %d bytes: %d frames, %+v", id, end, size, len(k.frames), k.rec)
			if err := k.same(written); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			all := len(k.frames) == len(written) && len(k.snapshots) == 2
			damaged := len(k.rec.Damage) > 0
			switch {
			case id == 1 && damaged == all, id == 2 && damaged && len(k.snapshots) == 2:
				t.Fatal(what)
			case id == 2 && !damaged && k.rec.Torn == (all && size >= end+tailBytes):
				t.Fatal(what)
			case id == 2 && k.rec.LastLSN != uint64(len(k.frames)):
				t.Fatal(what)
			}
			d.write(path, 0, whole)
		}
	}
}

// A damaged frame is lost alone where something shows that it had been durable, and ends the log where nothing does.
func TestRotIsToldFromATornEnd(t *testing.T) {
	for lsn := uint64(1); lsn <= 9; lsn++ {
		d, written := sample(t)
		f := d.replay().frames[lsn-1]
		d.flip(f.File, f.Offset+5, 1) // a reserved byte
		k := lawful(t, d, written, f.File)
		if lsn > sampleDurable {
			if !k.rec.Torn || len(k.rec.Damage) != 0 || k.rec.LastLSN != lsn-1 {
				t.Errorf("frame %d: %d frames, %+v", lsn, len(k.frames), k.rec)
			}
			continue
		}
		if k.rec.Torn || len(k.rec.Damage) != 1 || len(k.frames) != 8 || k.rec.LastLSN != 9 {
			t.Errorf("frame %d: %d frames, %+v", lsn, len(k.frames), k.rec)
			continue
		}
		bad := k.rec.Damage[0]
		if bad.File != f.File || bad.Offset != f.Offset || bad.Expected == "" || bad.Found == "" {
			t.Errorf("frame %d at %s offset %d: reported as %v", lsn, f.File, f.Offset, bad)
		}
	}
}

// written is a log of one file with frames 1 to n, none of them synced unless synced says so, and where each frame begins.
func written(t *testing.T, boot uint64, n, synced int) (d *disk, at []int64) {
	d = newDisk(t)
	d.o.Boot = boot
	log := d.create(1, 1, "")
	at = []int64{0}
	for i := 1; i <= n; i++ {
		at = append(at, log.end)
		if add(t, log, fmt.Sprint("frame ", i)); i == synced {
			ok(t, log.Sync(uint64(i)))
		}
	}
	return d, at
}

// A bad frame with a good one behind it is damage where that was written in this boot of the system: memory loses no frame. Else it is
// what a power cut tore.
func TestABadFrameOfThisBoot(t *testing.T) {
	for bad := 1; bad <= 4; bad++ {
		for _, boot := range []struct{ wrote, reads uint64 }{{7, 7}, {7, 8}, {7, 0}, {0, 0}} {
			d, at := written(t, boot.wrote, 4, 0)
			d.flip(d.o.path(1), at[bad]+frameHead, 1)
			d.o.Boot = boot.reads
			k := d.replay()
			damaged, torn, err := verify(d.o)
			ok(t, err)
			want := []uint64{1, 2, 3, 4}
			if boot.reads == 7 && bad < 4 {
				want = slices.Delete(want, bad-1, bad)
				if len(k.rec.Damage) != 1 || k.rec.Damage[0].Offset != at[bad] || len(damaged) != 1 || len(torn) != 0 || k.rec.Torn {
					t.Errorf("frame %d, boot %d: %+v, verify %v and %v", bad, boot, k.rec, damaged, torn)
				}
			} else {
				want = want[:bad-1]
				if len(k.rec.Damage) > 0 || !k.rec.Torn || len(damaged) > 0 || len(torn) != 1 {
					t.Errorf("frame %d, boot %d: %+v, verify %v and %v", bad, boot, k.rec, damaged, torn)
				}
			}
			if !slices.Equal(k.lsns(), want) {
				t.Errorf("frame %d, boot %d: frames %v, expected %v", bad, boot, k.lsns(), want)
			}
		}
	}
}

// Behind damage the log still ends where a power cut tore it, though good frames follow.
func TestATornEndBehindDamage(t *testing.T) {
	d, at := written(t, 7, 6, 2)
	path := d.o.path(1)
	d.flip(path, at[2]+frameHead, 1) // it was durable, as the frames behind it say
	d.flip(path, at[4]+frameHead, 1)
	d.o.Boot = 8
	k := d.replay()
	if want := []uint64{1, 3}; !slices.Equal(k.lsns(), want) || len(k.rec.Damage) != 1 || k.rec.Damage[0].Offset != at[2] || !k.rec.Torn {
		t.Errorf("frames %v, expected %v: %+v", k.lsns(), want, k.rec)
	}
	d.flip(path, at[3]+frameHead, 1) // nothing shows that this one ever was on the disk: nor may those behind it
	k = d.replay()
	if want := []uint64{1}; !slices.Equal(k.lsns(), want) || len(k.rec.Damage) != 1 || k.rec.LastLSN != 2 || !k.rec.Torn {
		t.Errorf("frames %v, expected %v: %+v", k.lsns(), want, k.rec)
	}
}

// Frames behind a torn one stay dead when the log has gone on in another file, though their bytes are still there.
func TestFramesBehindATornOneStayDead(t *testing.T) {
	d, written := sample(t)
	torn := d.replay().frames[7] // frame 8; 9 is whole behind it
	d.flip(torn.File, torn.Offset+50, 1)
	k := lawful(t, d, written, "torn")
	if k.rec.LastLSN != 7 {
		t.Fatalf("%+v", k.rec)
	}
	log := d.create(k.rec.LastFile+1, 8, "")
	delete(written, 9)
	for lsn := uint64(8); lsn < 11; lsn++ {
		written[lsn] = wrote{2, fmt.Sprint("again ", lsn)}
		add(t, log, written[lsn].payload)
		ok(t, log.Sync(lsn))
	}
	for range 2 {
		k = d.replay()
		if err := k.whole(written); err != nil || len(k.frames) != 10 || k.rec.Torn {
			t.Fatalf("%v, %d frames, %+v", err, len(k.frames), k.rec)
		}
		d.create(k.rec.LastFile+1, k.rec.LastLSN+1, "")
	}
	// Not even when the frame before the torn one rots.
	d.flip(torn.File, torn.Offset-1, 1)
	delete(written, 7)
	k = d.replay()
	if err := k.same(written); err != nil || len(k.frames) != 9 || len(k.rec.Damage) != 1 || k.rec.LastLSN != 10 {
		t.Fatalf("%v, %d frames, %+v", err, len(k.frames), k.rec)
	}
	// And not when the file that went on is lost.
	d.flip(torn.File, torn.Offset-1, 1)
	ok(t, d.Remove(d.o.path(3)))
	k = d.replay()
	if len(k.frames) != 7 || len(k.rec.Damage) != 1 || k.rec.Damage[0].File != d.o.path(3) || k.rec.LastLSN != 10 {
		t.Fatalf("%d frames, %+v", len(k.frames), k.rec)
	}
}

func TestMissingFilesAreDamage(t *testing.T) {
	d := newDisk(t)
	log := d.create(5, 100, "")
	for range 3 {
		add(t, log, "x")
		rotate(t, log, "")
	}
	ok(t, d.Remove(d.o.path(6)))
	k := d.replay()
	if !slices.Equal(k.lsns(), []uint64{100, 102}) {
		t.Fatalf("frames %v", k.lsns())
	}
	if bad := k.rec.Damage; len(bad) != 1 || bad[0].File != d.o.path(6) || !strings.Contains(bad[0].Error(), "frames 101 to 101") {
		t.Fatalf("damage %v", bad)
	}
}

// Any mixture of good frames in any order of any files, spoilt at random, is read without panic and in LSN order, and
// every frame handed over stands in the file as it is.
func TestReplayOfAnyFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDisk(t)
		files := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 6), 1, 4, rapid.ID).Draw(t, "files")
		for _, id := range files {
			b := appendHeader(nil, fileHeader{uuid: testUUID, id: id, first: rapid.Uint64Range(1, 12).Draw(t, "first")})
			for range rapid.IntRange(0, 8).Draw(t, "frames") {
				b = appendFrame(b, frameSeed(testUUID), frameHeader{
					kind: rapid.SampledFrom([]uint8{1, 1, 2, 9}).Draw(t, "kind"), file: id, offset: uint64(len(b)),
					lsn: rapid.Uint64Range(0, 16).Draw(t, "lsn"), durable: rapid.Uint64Range(0, 16).Draw(t, "durable"),
				}, rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "payload"))
			}
			b = append(b, make([]byte, rapid.IntRange(0, 200).Draw(t, "rest"))...)
			for range rapid.IntRange(0, 3).Draw(t, "flips") {
				b[rapid.IntRange(0, len(b)-1).Draw(t, "byte")] ^= rapid.Byte().Draw(t, "xor")
			}
			d.write(d.o.path(id), 0, b[:rapid.IntRange(len(b)/2, len(b)).Draw(t, "size")])
		}
		if err := d.stands(); err != nil && !errors.Is(err, errMagic) {
			t.Fatal(err)
		}
	})
}

// stands replays any bytes and checks that what is handed over stands there as it would be written, in order.
func (d *disk) stands() error {
	files := map[string][]byte{}
	var last uint64
	rec, err := Replay(d.o, func(f Frame) error {
		if files[f.File] == nil {
			files[f.File] = d.read(f.File)
		}
		b := files[f.File]
		if f.Offset < headerBytes || f.Offset+frameHead+int64(len(f.Payload)) > int64(len(b)) {
			return fmt.Errorf("%s offset %d: a frame of %d bytes in %d", f.File, f.Offset, len(f.Payload), len(b))
		}
		id, _ := parseName(f.File[len(logDir)+1:])
		h := decodeFrameHeader(b[f.Offset:])
		again := appendFrame(nil, frameSeed(testUUID), frameHeader{
			kind: f.Kind, file: id, offset: uint64(f.Offset), lsn: f.LSN, durable: h.durable, boot: h.boot,
		}, f.Payload)
		switch {
		case f.Kind == 0, !strings.HasPrefix(string(b[f.Offset:]), string(again)):
			return fmt.Errorf("%s offset %d does not hold %+v", f.File, f.Offset, f)
		case f.Kind == KindSnapshot:
			return nil
		case f.Offset == headerBytes:
			return fmt.Errorf("%s offset %d: kind %d", f.File, f.Offset, f.Kind)
		case f.LSN <= last:
			return fmt.Errorf("LSN %d after %d", f.LSN, last)
		}
		last = f.LSN
		return nil
	})
	if err == nil && rec.LastLSN < last {
		err = fmt.Errorf("LastLSN %d after frame %d", rec.LastLSN, last)
	}
	return err
}

// A good frame behind damage keeps its bytes in a file that is longer than one window of the reader, as that of every killed store is.
func TestFlipInALongFile(t *testing.T) {
	payloads := []string{"the first", "the payload of frame 1", "that of frame 2", "and of frame 3"}
	for flipped := range payloads {
		d := newDisk(t)
		d.o.PreallocBytes = 1 << 20
		log := d.create(1, 1, payloads[0])
		for _, p := range payloads[1:] {
			ok(t, log.Sync(must(log.Append(2, []byte(p)))(t)))
		}
		d = d.kill()
		d.flip(d.o.path(1), int64(bytes.Index(d.read(d.o.path(1)), []byte(payloads[flipped]))), 1)
		_, err := Replay(d.o, func(f Frame) error {
			if want := payloads[f.LSN]; string(f.Payload) != want {
				t.Errorf("payload %d flipped: frame %d has %q, expected %q", flipped, f.LSN, f.Payload, want)
			}
			return nil
		})
		ok(t, err)
	}
}
