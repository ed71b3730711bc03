package wal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/internal/damage"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The bytes of a log file do not change without a new version.
func TestGolden(t *testing.T) {
	d := newDisk(t)
	d.o.Boot = 0xb007b007
	log := d.create(3, 40, "snapshot")
	add(t, log, "")
	ok(t, log.Sync(40))
	must(log.Append(255, []byte("seventeen bytes..")))(t)
	got := d.read(d.o.path(3))
	dump := hex.Dump(got[:roundUp(int64(len(used(got))), 16)])

	golden := filepath.Join("testdata", "log.golden")
	if *update {
		ok(t, os.WriteFile(golden, []byte(dump), 0o644))
	}
	want := must(os.ReadFile(golden))(t)
	if dump != strings.ReplaceAll(string(want), "\r\n", "\n") {
		t.Fatalf("the format has changed; got\n%swant\n%s", dump, want)
	}
}

// onlyFile is a log of one file, and its bytes.
func onlyFile(t *testing.T) (*disk, []byte) {
	d := newDisk(t)
	add(t, d.create(1, 1, ""), "x")
	return d, d.read(d.o.path(1))
}

// changed is the log of onlyFile with other bytes.
func changed(t *testing.T, change func(b []byte)) *disk {
	d, b := onlyFile(t)
	change(b)
	d.write(d.o.path(1), 0, b)
	return d
}

func resum(b []byte) { binary.LittleEndian.PutUint64(b[56:], xxhash.Sum64(b[:56])) }

// A file of something else, of a later version, of another store, and a damaged one are four different errors.
func TestHeaderErrorsDiffer(t *testing.T) {
	open := func(change func(b []byte)) (Recovered, error) {
		k, err := replayAll(changed(t, change).o)
		return k.rec, err
	}
	is := func(name string, err error, want error) {
		t.Helper()
		for _, target := range []error{errMagic, ErrVersion, ErrForeign} {
			if errors.Is(err, target) != (target == want) {
				t.Errorf("%s: %v; is it %q?", name, err, target)
			}
		}
	}
	rec, err := open(func(b []byte) { copy(b, bytes.Repeat([]byte("something else. "), len(b)/16)) })
	if err != nil || len(rec.Damage) == 0 { // what is in the store's other files is usable without it
		t.Fatalf("another kind of file: %v, %+v", err, rec)
	}
	is("another kind of file", rec.Damage[0], errMagic)

	for name, x := range map[string]struct {
		change func(b []byte)
		says   string
	}{
		"later version":      {func(b []byte) { b[8] = 4 }, "offset 8: unsupported log version: found 4, this program reads 3"},
		"the version before": {func(b []byte) { b[8] = 2 }, "offset 8: unsupported log version: found 2, this program reads 3"},
		"unknown feature":    {func(b []byte) { b[12] = 4 }, "offset 12: unsupported log version: unknown feature bits: expected 0, found 0x4"},
	} {
		_, err = open(func(b []byte) { x.change(b); resum(b) })
		is(name, err, ErrVersion)
		if err == nil || !strings.HasSuffix(err.Error(), ".wal: "+x.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = open(func(b []byte) { b[20] ^= 1; resum(b) })
	is("other store", err, ErrForeign)

	for name, change := range map[string]func(b []byte){
		"magic":    func(b []byte) { b[0] ^= 1 },
		"version":  func(b []byte) { b[8] ^= 2 },
		"UUID":     func(b []byte) { b[20] ^= 1 },
		"checksum": func(b []byte) { b[60] ^= 1 },
		"all":      func(b []byte) { clear(b[:headerBytes]) },
	} {
		rec, err := open(change)
		if err != nil || len(rec.Damage) != 1 || rec.LastLSN != 1 || !errors.Is(rec.Damage[0], damage.ErrCorrupt) {
			t.Errorf("damaged %s: %v, %+v", name, err, rec)
		}
	}
}

// putFrame writes a frame behind the last one of b, after change has changed its bytes, and returns where it begins.
func putFrame(b []byte, h frameHeader, payload string, change func(f []byte)) (at int) {
	at = int(roundUp(int64(len(used(b))), 8))
	h.offset += uint64(at)
	f := appendFrame(nil, frameSeed(testUUID), h, []byte(payload))
	sum := len(f) - frameTail
	change(f[:sum])
	binary.LittleEndian.PutUint64(f[sum:], checksum(frameSeed(testUUID), f[:sum]))
	copy(b[at:], f)
	return at
}

// What is drawn as zero and is not, though the checksum is right, is another release's: neither damage nor a torn end, and Replay says
// which byte it is.
func TestReserved(t *testing.T) {
	frame := func(payload string, off int) func(b []byte) int {
		return func(b []byte) int {
			return off + putFrame(b, frameHeader{kind: 2, file: 1, lsn: 2}, payload, func(f []byte) { f[off] = 1 })
		}
	}
	header := func(off int) func(b []byte) int {
		return func(b []byte) int { b[off] = 1; resum(b); return off }
	}
	for name, change := range map[string]func(b []byte) (at int){
		"first of the header": header(48), "last of the header": header(55),
		"first of the frame": frame("x", 5), "last of the frame": frame("x", 7),
		"padding": frame("x", frameHead+1), "end of the padding": frame("x", frameHead+7),
	} {
		at := 0
		o := changed(t, func(b []byte) { at = change(b) }).o
		k, err := replayAll(o)
		if !errors.Is(err, ErrVersion) {
			t.Errorf("%s at %d: %v, %+v", name, at, err, k.rec)
		} else if want := fmt.Sprintf("%s: offset %d: unsupported log version: reserved byte: expected 0, found 1", o.path(1), at); err.Error() != want {
			t.Errorf("%s: %q", name, err)
		}
		if damaged, torn, err := verify(o); !errors.Is(err, ErrVersion) || len(damaged)+len(torn) > 0 {
			t.Errorf("%s: Verify: %v, %v, %v", name, err, damaged, torn)
		}
	}
}

// A frame that names another place, as a leftover in a reused block does, is no frame, though its checksum is right.
func TestFramesOfAnotherPlace(t *testing.T) {
	for name, h := range map[string]frameHeader{
		"as it should be": {kind: 2, file: 1, lsn: 2},
		"offset":          {kind: 2, file: 1, lsn: 2, offset: 8},
		"file":            {kind: 2, file: 2, lsn: 2},
		"kind":            {kind: 0, file: 1, lsn: 2},
		"LSN":             {kind: 2, file: 1, lsn: 0},
	} {
		k := changed(t, func(b []byte) { putFrame(b, h, "leftover", func([]byte) {}) }).replay()
		if good := name == "as it should be"; len(k.frames) == 2 != good || k.rec.Torn == good {
			t.Errorf("%s: %d frames, %+v", name, len(k.frames), k.rec)
		}
	}
}

// A log file of the same store under another name has no frames there.
func TestRenamedFile(t *testing.T) {
	d, b := onlyFile(t)
	d.write(d.o.path(2), 0, b)
	k := d.replay()
	if len(k.frames) != 1 || len(k.rec.Damage) == 0 || k.rec.Damage[0].File != d.o.path(2) {
		t.Fatalf("%d frames, %+v", len(k.frames), k.rec)
	}
}

// A frame within a payload is no frame, even when the one around it is lost.
func TestFrameWithinAPayload(t *testing.T) {
	d, log := newLog(t)
	inner := appendFrame(nil, log.seed, frameHeader{kind: 66, file: 1, offset: 120, lsn: 3, durable: 2}, []byte("forged"))
	add(t, log, string(append(make([]byte, 8), inner...)))
	add(t, log, "")
	ok(t, log.Sync(2))
	add(t, log, "")
	d.flip(d.o.path(1), log.headBytes, 1)
	k := d.replay()
	if len(k.frames) != 2 || k.frames[0].LSN != 2 || k.frames[1].Kind != 2 || len(k.rec.Damage) != 1 {
		t.Fatalf("%+v, %+v", k.frames, k.rec)
	}
}

func TestOnlyExactNamesAreLogFiles(t *testing.T) {
	for name, want := range map[string]uint64{
		"00000000000000ff.wal": 255, "ffffffffffffffff.wal": 1<<64 - 1,
		"0000000000000000.wal": 0, "00000000000000FF.wal": 0, "ff.wal": 0, "000000000000000ff.wal": 0, "00000000000000ff.wal.tmp": 0,
		"+0000000000000ff.wal": 0, spareName: 0,
	} {
		if id, ok := parseName(name); id != want || ok != (want != 0) {
			t.Errorf("%s: %d, %v", name, id, ok)
		}
	}
	o := Options{Dir: "d"}
	if id, ok := parseName(filepath.Base(o.path(0xabc))); id != 0xabc || !ok {
		t.Errorf("%d, %v", id, ok)
	}
}
