package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// A file that a killed run had just named may be known by that name in memory only: its name is made durable before the log
// goes on in it.
func TestGoesOnInAFileWhoseNameIsNotDurable(t *testing.T) {
	m := newMemFS()
	o := memOptions(m)
	log := must[*Log](t)(Create(o, 1, 1, []byte("one")))
	must[uint64](t)(log.Append(2, []byte("first")))
	renamed := false
	var killed *memFS
	m.before = func(op, name string) error {
		if renamed && op == "syncdir" && killed == nil {
			killed = m.kill()
		}
		renamed = renamed || op == "rename"
		return nil
	}
	if _, _, err := log.Rotate(text("two")); err != nil {
		t.Fatal(err)
	}
	m = killed
	m.limit = m.used()
	o.FS = m
	k := must[kept](t)(replayAll(o))
	log = must[*Log](t)(CreateLater(o, k.rec.LastFile+1, k.rec.LastLSN+1, func() []byte { return []byte("three") }))
	lsn := must[uint64](t)(log.AppendReserved(2, []byte("a deletion")))
	if err := log.Sync(lsn); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		o.FS = m.powerCut(rand.New(rand.NewPCG(seed, 1)))
		if k := must[kept](t)(replayAll(o)); k.rec.LastLSN < lsn {
			t.Fatalf("power cut %d: frame %d was durable (DurableLSN %d), replayed to %d: %+v", seed, lsn, log.DurableLSN(), k.rec.LastLSN, k.rec)
		}
	}
}

// Zeros whose fsync failed are read from the page cache by the next run, and not on the disk: an old frame behind them must not
// follow a new one after a power cut.
func TestZerosThatNeverReachedTheDisk(t *testing.T) {
	m, o, _ := stuck(t, 64<<10, 3)
	k := must[kept](t)(replayAll(o))
	last := k.frames[len(k.frames)-1]
	f := must[vfs.File](t)(m.Open(last.File, false))
	end := last.Offset + frameBytes(uint32(frameHead+len(last.Payload)))
	seed := frameSeed(testUUID)
	five := make([]byte, roundUp(end+1000, 4096)-end-2*minFrame-8) // so that frame 6 begins at a page's start
	torn := appendFrame(nil, seed, frameHeader{kind: 2, file: 2, offset: uint64(end), lsn: 5, durable: 1}, five)
	at := end + frameBytes(frameHead+4) + int64(len(torn))
	whole := appendFrame(nil, seed, frameHeader{kind: 2, file: 2, offset: uint64(at), lsn: 6, durable: 1}, []byte("six"))
	if at%4096 != 0 {
		t.Fatal(at)
	}
	_, _ = f.WriteAt([]byte("torn"), end)
	_, _ = f.WriteAt(whole, at)
	_ = f.Sync()
	syncs := 0
	m.dropped = func(string) bool { syncs++; return syncs == 3 } // files 1, 2, then the zeros
	log := must[*Log](t)(CreateLater(o, 3, 5, func() []byte { return []byte("snap") }))
	if _, err := log.AppendReserved(3, five); err == nil || log.Err() == nil {
		t.Fatal(err)
	}
	m = m.kill()
	m.dropped = func(string) bool { return false }
	o.FS = m
	k = must[kept](t)(replayAll(o))
	log = must[*Log](t)(CreateLater(o, 3, k.rec.LastLSN+1, func() []byte { return []byte("snap") }))
	lsn := must[uint64](t)(log.AppendReserved(3, five))
	if err := log.Sync(lsn); err != nil {
		t.Fatal(err)
	}
	o.FS = m.powerCut(rand.New(rand.NewPCG(1, 1)))
	k = must[kept](t)(replayAll(o))
	if k.rec.LastLSN != lsn {
		t.Fatalf("%d was the last, replayed to %d: %q", lsn, k.rec.LastLSN, k.frames[len(k.frames)-1].Payload)
	}
}

// The log does not go on in the newest file where that leaves nothing and the spare has room.
func TestGoesOnWhereRoomIs(t *testing.T) {
	m := newMemFS()
	o := memOptions(m)
	o.PreallocBytes = 64 << 10
	log := must[*Log](t)(Create(o, 1, 1, nil))
	m.limit = m.used()
	must[uint64](t)(log.AppendReserved(2, make([]byte, 16)))
	for {
		if _, err := log.AppendReserved(2, make([]byte, 48)); err != nil {
			break
		}
	}
	if left := log.reservedBytes - log.end; left < 48 {
		t.Fatal("left", left)
	}
	m = m.kill()
	n := m.names[o.sparePath()]
	n.now, n.sure = n.now[:16<<10], n.now[:16<<10] // a small spare: a recycled or a donated file
	m.limit = m.used()
	o.FS = m
	k := must[kept](t)(replayAll(o))
	log = must[*Log](t)(CreateLater(o, 2, k.rec.LastLSN+1, func() []byte { return nil }))
	for i := range 3 {
		if _, err := log.AppendReserved(3, make([]byte, 48)); err != nil {
			_, _, rerr := log.Rotate(text(""))
			t.Errorf("try %d: %v; rotate: %v; file %d has %d bytes left, the spare has %d", i, err, rerr, log.FileID(), log.reservedBytes-log.end, log.spare.bytes)
		}
	}
}

// A clean Close on a full disk gives up no space that the next run would not find in the spare.
func TestCloseKeepsTheReserve(t *testing.T) {
	m := newMemFS()
	o := memOptions(m)
	o.PreallocBytes = 64 << 10
	log := must[*Log](t)(Create(o, 1, 1, nil))
	must[uint64](t)(log.Append(2, make([]byte, 8192-112-48)))
	if err := log.Close(); err != nil { // file 1 is small now
		t.Fatal(err)
	}
	m.limit = m.used() // full
	log = must[*Log](t)(Create(o, 2, 2, nil))
	must[uint64](t)(log.AppendReserved(2, []byte("second")))
	id, _, err := log.Rotate(text("")) // a checkpoint
	if err == nil {
		err = log.Remove(id)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("file %d: %d reserved, spare %d", id, log.reservedBytes-log.end, log.spare.bytes)
	must[uint64](t)(log.AppendReserved(2, make([]byte, 9000))) // here it works
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("Close gave up %d bytes of %d", m.limit-m.used(), m.limit)
	m.limit = m.used() // somebody else took what was given up
	k := must[kept](t)(replayAll(o))
	log = must[*Log](t)(CreateLater(o, k.rec.LastFile+1, k.rec.LastLSN+1, func() []byte { return nil }))
	if _, err := log.AppendReserved(2, make([]byte, 9000)); err != nil {
		t.Fatal("after a clean Close: ", err)
	}
}

// Of the files that go, one that is large enough becomes the spare.
func TestRecyclesALargeFile(t *testing.T) {
	m := newMemFS()
	o := memOptions(m)
	o.PreallocBytes = 64 << 10
	log := must[*Log](t)(Create(o, 1, 1, nil))
	must[uint64](t)(log.Append(2, make([]byte, 8192-112-48)))
	if err := log.Close(); err != nil { // file 1 is small now
		t.Fatal(err)
	}
	log = must[*Log](t)(Create(o, 2, 2, nil))
	must[uint64](t)(log.Append(2, []byte("second")))
	m = m.kill()
	m.limit = m.used()
	o.FS = m
	log = must[*Log](t)(Create(o, 3, 3, nil)) // in the spare; no other is to be had
	used := m.used()
	id, _, err := log.Rotate(text("")) // goes on in file 3
	if err == nil {
		err = log.Remove(id)
	}
	if err != nil || id != 3 {
		t.Fatal(id, err)
	}
	if log.spare.bytes < o.PreallocBytes/2 {
		t.Errorf("the spare has %d bytes; %d bytes were given up on a full disk", log.spare.bytes, used-m.used())
	}
	m.limit = m.used()
	for i := range 2000 {
		if _, err := log.AppendReserved(2, make([]byte, 1000)); err == nil {
			continue
		}
		id, _, err := log.Rotate(text(""))
		if err == nil {
			err = log.Remove(id)
		}
		if err != nil {
			t.Fatalf("after %d frames: %v", i, err)
		}
	}
}

// To sync what was recovered, no file is begun where there is no room for one.
func TestSyncOfWhatWasRecovered(t *testing.T) {
	m := newMemFS()
	o := memOptions(m)
	log := must[*Log](t)(Create(o, 1, 1, nil))
	must[uint64](t)(log.Append(2, []byte("first")))
	n := m.names[o.path(1)]
	n.now = n.now[:log.end]
	delete(m.names, o.sparePath())
	m = m.kill()
	m.limit = m.used()
	o.FS = m
	log = must[*Log](t)(CreateLater(o, 2, 2, func() []byte { return []byte(strings.Repeat("s", 4096)) }))
	if err := log.Sync(1); err != nil {
		t.Fatal(err)
	}
}

// A folder is no gift, and stays where it is.
func TestDonatedFolder(t *testing.T) {
	dir := t.TempDir()
	full := true
	o := Options{FS: noRoomFS{vfs.OS, &full}, Dir: filepath.Join(dir, "wal"), UUID: testUUID, PreallocBytes: 4096}
	for _, d := range []string{"wal", "bloom"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bloom", "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log := must[*Log](t)(CreateLater(o, 1, 1, func() []byte { return nil }))
	if _, err := log.AppendReserved(2, nil); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatal(err)
	}
	err := log.Donate(filepath.Join(dir, "bloom"))
	full = false
	if _, aerr := log.AppendReserved(2, nil); aerr != nil {
		t.Errorf("Donate: %v; with room again: %v", err, aerr)
	}
	if _, cerr := Create(o, 7, 9, nil); cerr != nil {
		t.Errorf("next run: %v", cerr)
	}
	if _, serr := os.Stat(filepath.Join(dir, "bloom")); errors.Is(serr, fs.ErrNotExist) {
		t.Error("the folder is not where it was")
	}
	_ = fmt.Sprint
}

// noRoomFS is a disk without room.
type noRoomFS struct {
	vfs.FS
	full *bool
}

type noRoomFile struct {
	vfs.File
	full *bool
}

func (f noRoomFS) Create(name string) (vfs.File, error) {
	if *f.full {
		return nil, vfs.ErrNoSpace
	}
	return f.FS.Create(name)
}

func (f noRoomFS) Open(name string, ro bool) (vfs.File, error) {
	x, err := f.FS.Open(name, ro)
	return noRoomFile{x, f.full}, err
}

func (f noRoomFile) Allocate(off, n int64) error {
	if *f.full {
		return vfs.ErrNoSpace
	}
	return f.File.Allocate(off, n)
}

// A rotation that fails to go on in place and then finds a small spare accounts for what the try gave up.
func TestRotationAccountsForTheTry(t *testing.T) {
	m := newMemFS()
	o := memOptions(m)
	o.PreallocBytes = 64 << 10
	log := must[*Log](t)(Create(o, 1, 1, nil))
	must[uint64](t)(log.Append(2, make([]byte, 16)))
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	n := m.names[o.sparePath()]
	n.now, n.sure = n.now[:16<<10], n.now[:16<<10]
	log = must[*Log](t)(Create(o, 2, 2, nil))
	must[uint64](t)(log.Append(2, make([]byte, 16)))
	m.limit = m.used()
	log.spare.file.Truncate(16 << 10) // as if the disk had had no room for more
	log.holdSpare(16 << 10)
	m.limit = m.used()
	m.before = func(op, name string) error {
		if op == "write" && name == o.path(2) {
			return errInjected
		}
		return nil
	}
	id, _, err := log.Rotate(text("two"))
	if err != nil || id != 3 {
		t.Fatal(id, err)
	}
	m.before = nil
	if err := log.Remove(id); err != nil {
		t.Fatal(err)
	}
	if log.Bytes() != m.used() {
		t.Errorf("%d bytes are accounted for, %d are used", log.Bytes(), m.used())
	}
}

// The snapshot of a log that begins later is asked for when it begins, and not before: a process that only reads has no use for it.
func TestCreateLaterAsksLate(t *testing.T) {
	asked := 0
	log := must[*Log](t)(CreateLater(memOptions(newMemFS()), 1, 1, func() []byte {
		asked++
		return []byte("state")
	}))
	if asked > 0 || log.Begun() {
		t.Error("asked before anything is written")
	}
	must[uint64](t)(log.Append(2, []byte("first")))
	must[uint64](t)(log.Append(2, []byte("second")))
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
