package sessions

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/fuzzkit"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/internal/vfs"
)

var update = flag.Bool("update", false, "write the golden file")

var (
	testUUID  = [16]byte([]byte("the store's UUID"))
	testScope = [16]byte([]byte("a scope's own id"))
	testID    = [16]byte([]byte("a file's own id."))
)

// sample is a file that was made with one frame, and to which two were appended, the last being known durable.
func sample() []byte {
	first := Frame{Kind: 1, Body: []byte("made with the file")}
	h := Head{UUID: testUUID, Scope: testScope, ID: testID, Number: 42, made: uint64(headBytes + frameBytes(int64(len(first.Body))))}
	b, seed := appendHead(nil, h), frameSeed(testID)
	b = appendFrame(b, seed, frameAt{kind: first.Kind, offset: uint64(len(b))}, first.Body)
	for _, f := range []Frame{{Kind: 255, Body: []byte("appended")}, {Kind: 2}} {
		b = appendFrame(b, seed, frameAt{kind: f.Kind, offset: uint64(len(b)), durable: h.made}, f.Body)
	}
	return appendFrame(b, seed, frameAt{kind: kindDurable, offset: uint64(len(b)), durable: uint64(len(b))}, nil)
}

func TestGolden(t *testing.T) {
	name := filepath.Join("testdata", "session.golden")
	if *update {
		if err := os.WriteFile(name, sample(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(sample(), want) {
		t.Errorf("the bytes of a session file are others than those in %s: %x", name, sample())
	}
	c, err := Read(planted(t, want), testScope)
	if err != nil || c.Torn != "" || c.Head.Number != 42 || len(c.Frames) != 3 || c.proven != int64(len(want)) {
		t.Errorf("%+v, %v", c, err)
	}
}

// planted is a folder with that file in it.
func planted(t testing.TB, b []byte) Options {
	t.Helper()
	o := Options{Dir: memdir.Dir(t), UUID: testUUID}
	if err := os.WriteFile(o.Path(testScope), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return o
}

// A head that is not what this release wrote says what it is: damage, another release, another store. Each is another error.
func TestHeadErrors(t *testing.T) {
	with := func(change func(b []byte)) []byte {
		b := sample()
		change(b)
		return sealed(b)
	}
	for name, c := range map[string]struct {
		b    []byte
		want error
		says string
	}{
		"short":          {sample()[:50], damage.ErrCorrupt, "offset 0"},
		"magic":          {with(func(b []byte) { b[0] = 'X' }), damage.ErrCorrupt, "magic"},
		"checksum":       {func() []byte { b := sample(); b[70] ^= 1; return b }(), damage.ErrCorrupt, "checksum"},
		"damaged number": {func() []byte { b := sample(); b[8] = 2; return b }(), damage.ErrCorrupt, "checksum"},
		"version":        {with(func(b []byte) { b[8] = 2 }), vfs.ErrVersion, "offset 8"},
		"features":       {with(func(b []byte) { b[13] = 1 }), vfs.ErrVersion, "offset 12"},
		"reserved":       {with(func(b []byte) { b[87] = 1 }), vfs.ErrVersion, "offset 87"},
		"store":          {with(func(b []byte) { b[16]++ }), vfs.ErrForeign, "UUID"},
		"scope":          {with(func(b []byte) { b[32]++ }), damage.ErrCorrupt, "offset 32"},
		"made":           {with(func(b []byte) { clear(b[72:80]) }), damage.ErrCorrupt, "offset 72"},
		"empty":          {nil, os.ErrNotExist, ""},
	} {
		o := planted(t, c.b)
		f, err := Open(o, testScope)
		if f != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil || c.b == nil {
			continue
		}
		for _, other := range []error{damage.ErrCorrupt, vfs.ErrVersion, vfs.ErrForeign} {
			if other != c.want && errors.Is(err, other) {
				t.Errorf("%s is also %v: %v", name, other, err)
			}
		}
		if left, rerr := os.ReadFile(o.Path(testScope)); rerr != nil || !bytes.Equal(left, c.b) {
			t.Errorf("%s: the file was changed: %v", name, rerr)
		}
	}
}

// Bytes of a frame that this format leaves zero are another release's, if the checksum is right.
func TestReservedInFrame(t *testing.T) {
	b := sample()
	at := headBytes + int(frameBytes(int64(len("made with the file"))))
	b[at+6] = 1
	if _, err := Open(planted(t, sealed(b)), testScope); !errors.Is(err, vfs.ErrVersion) || errors.Is(err, damage.ErrCorrupt) {
		t.Error(err)
	}
}

// sealed gives the head, and the frames behind it as far as their lengths go, checksums that fit.
func sealed(b []byte) []byte {
	b = bytes.Clone(b)
	if len(b) < headBytes {
		return b
	}
	le := binary.LittleEndian
	le.PutUint64(b[88:], xxhash.Sum64(b[:88]))
	for off := int64(headBytes); off+minFrame <= int64(len(b)); {
		n := frameBytes(int64(le.Uint32(b[off:])))
		if n > int64(len(b))-off {
			break
		}
		le.PutUint64(b[off+n-frameTail:], checksum(frameSeed([16]byte(b[48:64])), b[off:off+n-frameTail]))
		off += n
	}
	return b
}

// Whatever the bytes are: frames that were read are whole, damage names the file and a place in it, and what is opened for writing takes
// frames, which are there afterwards.
func FuzzFile(f *testing.F) {
	b := sample()
	edit := func(off int, v uint64) []byte {
		b := bytes.Clone(b)
		binary.LittleEndian.PutUint64(b[off:], v)
		return b
	}
	second := headBytes + int(frameBytes(int64(len("made with the file"))))
	fuzzkit.Seeds(f,
		[]any{b, false},
		[]any{b[:len(b)-9], false},
		[]any{append(bytes.Clone(b), make([]byte, 100)...), false},
		[]any{edit(second, math.MaxUint64), false},
		[]any{edit(second, 1<<32), true}, // length and kind
		[]any{edit(second+16, math.MaxUint64), true},
		[]any{edit(72, math.MaxUint64), true},
		[]any{append(bytes.Clone(b[:second]), bytes.Repeat(b[second:], 9)...), false},
		[]any{[]byte(magic), true},
	)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if len(b) > 1<<16 {
			return
		}
		if seal {
			b = sealed(b)
		}
		o := planted(t, b)
		fuzzkit.Bounded(t, 4<<20+uint64(64*len(b)), func() { lawful(t, o, b) })
	})
}

func lawful(t *testing.T, o Options, b []byte) {
	before, rerr := Read(o, testScope)
	file, err := Open(o, testScope)
	if (rerr == nil) != (err == nil) {
		t.Fatalf("read: %v, open: %v", rerr, err)
	}
	var bad *damage.Error
	if errors.As(err, &bad) && (bad.File != o.Path(testScope) || bad.Offset < 0 || bad.Offset > int64(len(b))) {
		t.Fatal(bad)
	}
	if err != nil {
		if left, _ := os.ReadFile(o.Path(testScope)); !bytes.Equal(left, b) {
			t.Fatalf("the file was changed after %v", err)
		}
		return
	}
	if err := errors.Join(file.Append(Frame{Kind: 9, Body: b[:min(len(b), 64)]}, true), file.Close()); err != nil {
		t.Fatal(err)
	}
	after, err := Read(o, testScope)
	if err != nil || after.Torn != "" || len(after.Frames) != len(before.Frames)+1 {
		t.Fatalf("%d frames, before %d: %q, %v", len(after.Frames), len(before.Frames), after.Torn, err)
	}
}
