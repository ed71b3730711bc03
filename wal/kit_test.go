package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

var testUUID = [16]byte{0xd0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

var errInjected = errors.New("injected failure")

// disk is a disk in memory that can crash, fail and be full, with a log in its only folder.
type disk struct {
	*crashfs.Disk
	t rapid.TB
	o Options // of the log
}

const logDir = "/wal"

func newDisk(t rapid.TB) *disk {
	return diskOf(t, crashfs.New(crashfs.Options{Dir: logDir}), Options{Dir: logDir, UUID: testUUID, PreallocBytes: 4096})
}

func diskOf(t rapid.TB, c *crashfs.Disk, o Options) *disk {
	o.FS = c
	return &disk{Disk: c, t: t, o: o}
}

// newLog is an empty log on a disk of its own.
func newLog(t rapid.TB) (*disk, *Log) {
	t.Helper()
	d := newDisk(t)
	return d, d.create(1, 1, "")
}

// create is Create, with frame 1 as the next one of file 1, and so on.
func (d *disk) create(id, next uint64, snapshot string) *Log {
	d.t.Helper()
	return must(Create(d.o, id, next, []byte(snapshot)))(d.t)
}

func (d *disk) createLater(id, next uint64, snapshot string) *Log {
	d.t.Helper()
	return must(CreateLater(d.o, id, next, func() []byte { return []byte(snapshot) }))(d.t)
}

// goOn is CreateLater after a replay that returned k.
func (d *disk) goOn(k kept, snapshot string) *Log {
	d.t.Helper()
	return d.createLater(k.rec.LastFile+1, k.rec.LastLSN+1, snapshot)
}

// kill is what the next process finds after this one was killed; a power cut may still come.
func (d *disk) kill() *disk { return diskOf(d.t, must(d.Kill(logDir))(d.t), d.o) }

// cut is what is there after the power was lost.
func (d *disk) cut(rnd *rand.Rand) *disk { return diskOf(d.t, must(d.PowerCut(rnd, logDir))(d.t), d.o) }

// fill leaves no room on the disk, but for so many bytes.
func (d *disk) fill(but int64) { d.SetBytes(d.Used() + but) }

// fails lets every call that which says yes to fail with err.
func (d *disk) fails(err error, which func(crashfs.Op) bool) {
	d.Before(func(op crashfs.Op) error {
		if which(op) {
			return err
		}
		return nil
	})
}

// kinds are the calls of these kinds.
func kinds(all ...string) func(crashfs.Op) bool {
	return func(op crashfs.Op) bool { return slices.Contains(all, op.Kind) }
}

// read returns the bytes of a file.
func (d *disk) read(path string) []byte {
	d.t.Helper()
	f := must(d.Open(path, true))(d.t)
	defer f.Close()
	b := make([]byte, must(f.Stat())(d.t).Size)
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		d.t.Fatal(err)
	}
	return b
}

// write makes b the bytes of a file at off, durably; the file is made if there is none.
func (d *disk) write(path string, off int64, b []byte) {
	d.t.Helper()
	f, err := d.Open(path, false)
	if err != nil {
		f = must(d.Create(path))(d.t)
	}
	defer f.Close()
	_, err = f.WriteAt(b, off)
	ok(d.t, errors.Join(err, f.Sync()))
}

// flip changes bits of one byte.
func (d *disk) flip(path string, off int64, mask byte) {
	d.t.Helper()
	d.write(path, off, []byte{d.read(path)[off] ^ mask})
}

// resize makes a file as long as that, durably.
func (d *disk) resize(path string, size int64) {
	d.t.Helper()
	f := must(d.Open(path, false))(d.t)
	defer f.Close()
	ok(d.t, errors.Join(f.Truncate(size), f.Sync()))
}

// used is what a file's bytes are, without the zeros behind them.
func used(b []byte) []byte { return bytes.TrimRight(b, "\x00") }

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

// replay replays the log, which must not fail.
func (d *disk) replay() kept {
	d.t.Helper()
	return must(replayAll(d.o))(d.t)
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

// whole says what is wrong with a log that only crashes have met.
func (k kept) whole(log map[uint64]wrote) error {
	if len(k.rec.Damage) > 0 {
		return fmt.Errorf("damage: %v", k.rec.Damage)
	}
	return errors.Join(k.same(log), k.consecutive())
}

// lsns are the numbers of the frames.
func (k kept) lsns() (out []uint64) {
	for _, f := range k.frames {
		out = append(out, f.LSN)
	}
	return out
}

// end is where the last frame ends.
func (k kept) end() (path string, off int64) {
	f := k.frames[len(k.frames)-1]
	return f.File, f.Offset + frameBytes(uint32(frameHead+len(f.Payload)))
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

func must[T any](v T, err error) func(rapid.TB) T {
	return func(t rapid.TB) T {
		t.Helper()
		ok(t, err)
		return v
	}
}

func ok(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// add appends a frame.
func add(t rapid.TB, log *Log, payload string) uint64 {
	t.Helper()
	return must(log.Append(2, []byte(payload)))(t)
}

// addReserved appends a frame that makes room.
func addReserved(t rapid.TB, log *Log, payload string) uint64 {
	t.Helper()
	return must(log.AppendReserved(2, []byte(payload)))(t)
}

// rotate begins the next file, or goes on in this one.
func rotate(t rapid.TB, log *Log, snapshot string) (id, lsn uint64) {
	t.Helper()
	id, lsn, err := log.Rotate(text(snapshot))
	ok(t, err)
	return id, lsn
}

// text returns a snapshot callback.
func text(s string) func(uint64) []byte { return func(uint64) []byte { return []byte(s) } }

// dirOptions are those of a log in a real folder.
func dirOptions(t testing.TB) Options {
	return Options{Dir: t.TempDir(), UUID: testUUID, PreallocBytes: 4096}
}
