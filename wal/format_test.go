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
	m := newMemFS()
	o := memOptions(m)
	o.Boot = 0xb007b007
	log := must[*Log](t)(Create(o, 3, 40, []byte("snapshot")))
	must[uint64](t)(log.Append(2, nil))
	if err := log.Sync(40); err != nil {
		t.Fatal(err)
	}
	must[uint64](t)(log.Append(255, []byte("seventeen bytes..")))
	got := m.names[o.path(3)].now
	rest := bytes.TrimRight(got, "\x00")
	dump := hex.Dump(got[:roundUp(int64(len(rest)), 16)])

	golden := filepath.Join("testdata", "log.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(dump), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := must[[]byte](t)(os.ReadFile(golden))
	if dump != strings.ReplaceAll(string(want), "\r\n", "\n") {
		t.Fatalf("the format has changed; got\n%swant\n%s", dump, want)
	}
}

// onlyFile is a log of one file, and its bytes.
func onlyFile(t *testing.T) (Options, []byte) {
	m := newMemFS()
	o := memOptions(m)
	log := must[*Log](t)(Create(o, 1, 1, nil))
	must[uint64](t)(log.Append(2, []byte("x")))
	return o, m.names[o.path(1)].now
}

func resum(b []byte) { binary.LittleEndian.PutUint64(b[56:], xxhash.Sum64(b[:56])) }

// A file of something else, of a later version, of another store, and a damaged one are four different errors.
func TestHeaderErrorsDiffer(t *testing.T) {
	open := func(change func(b []byte)) (Recovered, error) {
		o, b := onlyFile(t)
		change(b)
		k, err := replayAll(o)
		return k.rec, err
	}
	is := func(name string, err error, want error) {
		t.Helper()
		for _, target := range []error{ErrMagic, ErrVersion, ErrForeign} {
			if errors.Is(err, target) != (target == want) {
				t.Errorf("%s: %v; is it %q?", name, err, target)
			}
		}
	}
	rec, err := open(func(b []byte) { copy(b, bytes.Repeat([]byte("something else. "), len(b)/16)) })
	if err != nil || len(rec.Damage) == 0 { // what is in the store's other files is usable without it
		t.Fatalf("another kind of file: %v, %+v", err, rec)
	}
	is("another kind of file", rec.Damage[0], ErrMagic)

	_, err = open(func(b []byte) { b[8] = 4; resum(b) })
	is("later version", err, ErrVersion)
	var v *VersionError
	if !errors.As(err, &v) || v.Found != 4 || v.Supported != 3 {
		t.Errorf("%#v", v)
	}
	_, err = open(func(b []byte) { b[8] = 2; resum(b) })
	is("the version before", err, ErrVersion)
	_, err = open(func(b []byte) { b[12] = 4; resum(b) })
	is("unknown feature", err, ErrVersion)
	if !errors.As(err, &v) || v.Features != 4 {
		t.Errorf("%#v", v)
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

// What is drawn as zero and is not, though the checksum is right, is another release's: neither damage nor a torn end, and Replay says
// which byte it is.
func TestReserved(t *testing.T) {
	frame := func(payload string, off int) func(o Options, b []byte) (at int) {
		return func(o Options, b []byte) int {
			end := int(roundUp(int64(len(bytes.TrimRight(b, "\x00"))), 8))
			f := appendFrame(nil, frameSeed(o.UUID), frameHeader{kind: 2, file: 1, offset: uint64(end), lsn: 2}, []byte(payload))
			f[off] = 1
			sum := len(f) - frameTail
			binary.LittleEndian.PutUint64(f[sum:], checksum(frameSeed(o.UUID), f[:sum]))
			copy(b[end:], f)
			return end + off
		}
	}
	header := func(off int) func(o Options, b []byte) int {
		return func(o Options, b []byte) int { b[off] = 1; resum(b); return off }
	}
	for name, change := range map[string]func(o Options, b []byte) (at int){
		"first of the header": header(48), "last of the header": header(55),
		"first of the frame": frame("x", 5), "last of the frame": frame("x", 7),
		"padding": frame("x", frameHead+1), "end of the padding": frame("x", frameHead+7),
	} {
		o, b := onlyFile(t)
		at := change(o, b)
		k, err := replayAll(o)
		var v *VersionError
		if !errors.Is(err, ErrVersion) || !errors.As(err, &v) || v.File != o.path(1) || v.Offset != int64(at) || v.Reserved != 1 {
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
	for name, change := range map[string]func(*frameHeader){
		"as it should be": func(*frameHeader) {},
		"offset":          func(h *frameHeader) { h.offset += 8 },
		"file":            func(h *frameHeader) { h.file = 2 },
		"kind":            func(h *frameHeader) { h.kind = 0 },
		"LSN":             func(h *frameHeader) { h.lsn = 0 },
	} {
		o, b := onlyFile(t)
		end := len(bytes.TrimRight(b, "\x00"))
		end = int(roundUp(int64(end), 8))
		h := frameHeader{kind: 2, file: 1, offset: uint64(end), lsn: 2, durable: 0}
		change(&h)
		copy(b[end:], appendFrame(nil, frameSeed(testUUID), h, []byte("leftover")))
		k := must[kept](t)(replayAll(o))
		if good := name == "as it should be"; len(k.frames) == 2 != good || k.rec.Torn == good {
			t.Errorf("%s: %d frames, %+v", name, len(k.frames), k.rec)
		}
	}
}

// A log file of the same store under another name has no frames there.
func TestRenamedFile(t *testing.T) {
	o, b := onlyFile(t)
	o.FS.(*memFS).names[o.path(2)] = &memNode{now: bytes.Clone(b)}
	k := must[kept](t)(replayAll(o))
	if len(k.frames) != 1 || len(k.rec.Damage) == 0 || k.rec.Damage[0].File != o.path(2) {
		t.Fatalf("%d frames, %+v", len(k.frames), k.rec)
	}
}

// A frame within a payload is no frame, even when the one around it is lost.
func TestFrameWithinAPayload(t *testing.T) {
	m := newMemFS()
	o := memOptions(m)
	log := must[*Log](t)(Create(o, 1, 1, nil))
	inner := appendFrame(nil, log.seed, frameHeader{kind: 66, file: 1, offset: 120, lsn: 3, durable: 2}, []byte("forged"))
	must[uint64](t)(log.Append(2, append(make([]byte, 8), inner...)))
	must[uint64](t)(log.Append(2, nil))
	if err := log.Sync(2); err != nil {
		t.Fatal(err)
	}
	must[uint64](t)(log.Append(2, nil))
	m.names[o.path(1)].now[log.headBytes] ^= 1
	k := must[kept](t)(replayAll(o))
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
