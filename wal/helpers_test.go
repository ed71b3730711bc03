package wal

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

var testUUID = [16]byte{0xd0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

func memOptions(m vfs.FS) Options {
	return Options{FS: m, Dir: "/wal", UUID: testUUID, PreallocBytes: 4096}
}

// ownBytes are n bytes that begin as a file of this store does.
func ownBytes(n int) []byte {
	b := appendHeader(nil, fileHeader{uuid: testUUID, id: 77, first: 1})
	return append(b, strings.Repeat("old bytes ", n/10)...)[:n]
}

// wrote is a frame as the test wrote it.
type wrote struct {
	kind    uint8
	payload string
}

// kept is what a replay handed back.
type kept struct {
	rec       Recovered
	frames    []Frame           // without snapshots; payloads copied
	snapshots map[uint64]string // by LSN
}

func replayAll(o Options) (kept, error) {
	k := kept{snapshots: map[uint64]string{}}
	var last uint64
	var err error
	k.rec, err = Replay(o, func(f Frame) error {
		if f.Kind == KindSnapshot {
			k.snapshots[f.LSN] = string(f.Payload)
			return nil
		}
		if f.LSN <= last {
			return fmt.Errorf("LSN %d after %d", f.LSN, last)
		}
		last = f.LSN
		f.Payload = bytes.Clone(f.Payload)
		k.frames = append(k.frames, f)
		return nil
	})
	return k, err
}

// same says how the frames that came back differ from what was written, apart from those that are missing.
func (k kept) same(log map[uint64]wrote) error {
	for _, f := range k.frames {
		w, ok := log[f.LSN]
		if !ok {
			return fmt.Errorf("frame %d was never written", f.LSN)
		}
		if w.kind != f.Kind || w.payload != string(f.Payload) {
			return fmt.Errorf("frame %d: kind %d %q came back as kind %d %q", f.LSN, w.kind, w.payload, f.Kind, f.Payload)
		}
	}
	return nil
}

// consecutive says where the frames have a gap.
func (k kept) consecutive() error {
	for i := 1; i < len(k.frames); i++ {
		if a, b := k.frames[i-1].LSN, k.frames[i].LSN; b != a+1 {
			return fmt.Errorf("frame %d follows frame %d", b, a)
		}
	}
	return nil
}

// verify returns what Verify reports, torn ends apart from the rest.
func verify(o Options) (damaged, torn []*damage.Error, err error) {
	err = Verify(o, func(e *damage.Error) {
		if errors.Is(e, ErrTorn) {
			torn = append(torn, e)
		} else {
			damaged = append(damaged, e)
		}
	}, nil)
	return damaged, torn, err
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// text returns a snapshot callback.
func text(s string) func(uint64) []byte { return func(uint64) []byte { return []byte(s) } }

// sickFS has one block of 4 KiB in each file that cannot be read.
type sickFS struct {
	vfs.FS
	block int64
	err   error
}

type sickFile struct {
	vfs.File
	fs sickFS
}

func (s sickFS) Open(name string, readOnly bool) (vfs.File, error) {
	f, err := s.FS.Open(name, readOnly)
	return sickFile{f, s}, err
}

func (f sickFile) ReadAt(b []byte, off int64) (int, error) {
	if off < f.fs.block+4096 && off+int64(len(b)) > f.fs.block {
		for i := range b {
			b[i] = 0xdb // a reader may use b as scratch space
		}
		return 0, f.fs.err
	}
	return f.File.ReadAt(b, off)
}
