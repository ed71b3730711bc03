package wal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// A spare that a kill left is used as it is, whatever of ours it holds: its blocks are never given up.
func TestLeftoverSpareIsUsed(t *testing.T) {
	d := newDisk(t)
	add(t, d.create(1, 1, "one"), "first")
	d.write(d.o.sparePath(), 0, ownBytes(100))
	for off := int64(1); off < 8; off++ {
		d.write(d.o.sparePath(), off*1000, []byte("a longer head than the next one"))
	}
	d = d.kill()
	d.fill(0)
	d.fails(errInjected, kinds("remove", "truncate"))
	log := d.create(2, 2, "two")
	addReserved(t, log, "")
	damaged, torn, err := verify(d.o)
	if err != nil || len(damaged)+len(torn) > 0 || log.FileID() != 2 {
		t.Fatal(log.FileID(), damaged, torn, err)
	}
}

// So is one of which a power cut took a part of the first sector.
func TestTornSpareIsUsed(t *testing.T) {
	for n := range 2 * headerBytes {
		for _, tear := range []func(b []byte){func(b []byte) { clear(b[n:]) }, func(b []byte) { clear(b[:n]) }} {
			d := newDisk(t)
			ok(t, d.create(1, 1, "one").Close())
			b := ownBytes(512)
			tear(b)
			d.write(d.o.sparePath(), 0, b)
			add(t, d.create(2, 1, "two"), "first")
			if _, spares, err := d.o.files(); err != nil || fmt.Sprint(spares) != "[next.wal.tmp]" {
				t.Errorf("torn at %d: %v, %v", n, spares, err)
			}
		}
	}
}

// What a checkpoint does not need any more becomes the spare, where there is none.
func TestOldFileBecomesTheSpare(t *testing.T) {
	d, log := newLog(t)
	add(t, log, "first")
	d.fill(0)
	full := d.Used()
	for id := uint64(2); id < 20; id++ {
		if got, _ := rotate(t, log, "head"); got != id {
			t.Fatal(got)
		}
		ok(t, log.Remove(id))
		if d.Used() != full || log.Bytes() != full {
			t.Fatalf("file %d: %d bytes of %d are used, Bytes is %d", id, d.Used(), full, log.Bytes())
		}
		addReserved(t, log, "more")
		k := d.kill().replay()
		if len(k.rec.Damage) > 0 || k.rec.Torn || k.rec.LastLSN != id || k.rec.LastFile != id {
			t.Fatalf("%+v", k.rec)
		}
	}
}

// A spare that could not be reserved is reserved at the next append that finds room.
func TestSpareIsTriedAgain(t *testing.T) {
	d, log := newLog(t)
	d.fill(0)
	rotate(t, log, "")
	if _, err := d.Stat(d.o.sparePath()); err == nil {
		t.Fatal("there is a spare on a full disk")
	}
	d.SetBytes(0)
	add(t, log, "")
	if info, err := d.Stat(d.o.sparePath()); err != nil || info.Size < d.o.PreallocBytes {
		t.Fatalf("spare: %+v, %v", info, err)
	}
	if got := log.Bytes(); got != d.Used() {
		t.Fatalf("Bytes is %d, the files take %d", got, d.Used())
	}
}

// A file that becomes the spare has lost its name durably before the next one goes, whatever comes of it: where none of them can be used,
// a power cut must not bring back an earlier one without a later one.
func TestOldFilesLeaveNoHole(t *testing.T) {
	d, log := newLog(t)
	add(t, log, "first")
	rotate(t, log, "two")
	lsn := add(t, log, "second")
	d.fill(0)
	rotate(t, log, "three")
	d.fails(errInjected, func(op crashfs.Op) bool { return op.Kind == "read" && op.Name == spareName })
	ok(t, log.Remove(3))
	d.afterCuts(lsn)
	if names := must(d.List(logDir))(t); len(names) != 1 || log.Bytes() != d.Used() {
		t.Errorf("%v are there: %d bytes are accounted for, %d are used", names, log.Bytes(), d.Used())
	}
}

// No file stays under the spare's name that has no blocks: whatever a full disk lets the log do, a spare has room or there is none.
func TestNoEmptySpareStays(t *testing.T) {
	d, log := rotatedOnAFullDisk(t)
	none := func(after string) {
		if _, spares, err := d.o.files(); err != nil || len(spares) > 0 {
			t.Errorf("after %s there is %v, %v", after, spares, err)
		}
	}
	none("a rotation into the spare")
	if id, _ := rotate(t, log, "in place"); id != 2 {
		t.Fatal(id)
	}
	none("a rotation in place")
	addReserved(t, log, "")
	none("a frame")
}

// What a failed write left of a head is gone, however much it was: nothing of it lies behind a shorter one.
func TestFailedHeadIsUndone(t *testing.T) {
	d, log := newLog(t)
	add(t, log, "first")
	d.fails(&crashfs.Short{Bytes: 3000, Err: errInjected}, kinds("write"))
	if _, _, err := log.Rotate(text(strings.Repeat("head ", 700))); !errors.Is(err, errInjected) || log.Err() != nil {
		t.Fatal(err)
	}
	d.Before(nil)
	rotate(t, log, "head")
	if damaged, torn, err := verify(d.o); err != nil || len(damaged)+len(torn) > 0 {
		t.Error(damaged, torn, err)
	}
}

// foreign puts something of somebody else under a name.
var foreign = map[string]func(path string) error{
	"a text":   func(p string) error { return os.WriteFile(p, bytes.Repeat([]byte("dear diary, "), 1<<16), 0o600) },
	"one byte": func(p string) error { return os.WriteFile(p, []byte{7}, 0o600) },
	"a folder": func(p string) error { return os.Mkdir(p, 0o700) },
	"another's": func(p string) error {
		return os.WriteFile(p, appendHeader(nil, fileHeader{uuid: [16]byte{9}, id: 1, first: 1}), 0o600)
	},
}

// What somebody else keeps under the name of the next log file stays as it is: the log makes its next file under another name.
func TestForeignSpare(t *testing.T) {
	for what, put := range foreign {
		t.Run(what, func(t *testing.T) {
			o := dirOptions(t)
			path := o.withDefaults().sparePath()
			ok(t, put(path))
			before, _ := os.ReadFile(path)
			for id := uint64(1); id < 4; id++ {
				log := must(Create(o, 2*id-1, 2*id-1, []byte("head")))(t)
				add(t, log, "a frame")
				rotate(t, log, "head")
				add(t, log, "a frame")
				ok(t, log.Remove(2*id))
				if id != 2 { // killed: what is left of it is the next one's
					ok(t, log.Close())
				}
			}
			if after, err := os.ReadFile(path); string(after) != string(before) || err != nil && what != "a folder" {
				t.Errorf("%.99q is now %.99q, %v", before, after, err)
			}
			if info, err := os.Lstat(path); err != nil || info.IsDir() != (what == "a folder") {
				t.Errorf("it is gone: %v", err)
			}
			lists(t, o, "after all", "[0000000000000006.wal next.wal.tmp next1.wal.tmp]")
		})
	}
	o := dirOptions(t)
	for i := range 9 {
		name := strings.Replace(fmt.Sprintf("next%d.wal.tmp", i), "0", "", 1)
		ok(t, os.WriteFile(filepath.Join(o.Dir, name), []byte("mine"), 0o600))
	}
	if log, err := Create(o, 1, 1, nil); !errors.Is(err, ErrForeign) {
		t.Errorf("all names are taken: %v, %v", log, err)
	}
}

// lists compares what the folder has.
func lists(t *testing.T, o Options, when, want string) {
	t.Helper()
	if names, err := vfs.OS.List(o.Dir); err != nil || fmt.Sprint(names) != want {
		t.Errorf("%s, the folder has %v, %v, expected %s", when, names, err, want)
	}
}

// When somebody takes away what had the name of the next log file, nothing stays that the log reserved under another one: the next run
// takes it, and removes what is too much once it writes. One that only reads removes nothing.
func TestForeignSpareThatIsTakenAway(t *testing.T) {
	for _, both := range []bool{false, true} {
		o := dirOptions(t)
		path := o.sparePath()
		film := filepath.Join(o.Dir, "next2.wal.tmp")
		ok(t, errors.Join(os.WriteFile(path, []byte("mine"), 0o600), os.WriteFile(film, []byte("mine, too"), 0o600)))
		log := must(Create(o, 1, 1, []byte("head")))(t)
		add(t, log, "a frame")
		ok(t, errors.Join(log.Close(), os.Remove(path)))
		spares := "next1.wal.tmp next2.wal.tmp"
		if both { // as an earlier release left them
			ok(t, os.WriteFile(path, make([]byte, 4096), 0o600))
			spares = "next.wal.tmp next2.wal.tmp"
		}
		before, _ := vfs.OS.List(o.Dir)
		log = must(CreateLater(o, 2, 2, func() []byte { return nil }))(t)
		lists(t, o, "opened", fmt.Sprint(before))
		add(t, log, "a frame")
		ok(t, log.Close())
		lists(t, o, "written", "[0000000000000001.wal 0000000000000002.wal "+spares+"]")
		if b, err := os.ReadFile(film); err != nil || string(b) != "mine, too" {
			t.Errorf("what is somebody's is %q, %v", b, err)
		}
	}
}

// What a log occupies that is yet to begin: the files before it, what an earlier run reserved, and a gift in the place of that.
func TestBytesBeforeItBegins(t *testing.T) {
	d := newDisk(t)
	ok(t, d.create(1, 1, "").Close())
	log := d.createLater(2, 1, "")
	if got := log.Bytes(); got != d.Used() {
		t.Errorf("Bytes is %d, the files take %d", got, d.Used())
	}
	const gift = logDir + "/bloom"
	d.write(gift, 0, ownBytes(9000))
	ok(t, log.Donate(gift))
	if got := log.Bytes(); got != d.Used() {
		t.Errorf("Bytes is %d, the files take %d with a gift", got, d.Used())
	}
	add(t, log, "first")
	if got := log.Bytes(); got != d.Used() {
		t.Errorf("Bytes is %d, the files take %d with a frame", got, d.Used())
	}
}

// A folder is no gift, and stays where it is.
func TestDonatedFolder(t *testing.T) {
	d := newDisk(t)
	const gift = logDir + "/bloom"
	ok(t, d.Mkdir(gift))
	log := d.createLater(1, 1, "")
	d.fails(vfs.ErrNoSpace, kinds("create", "allocate"))
	if _, err := log.AppendReserved(2, nil); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatal(err)
	}
	if err := log.Donate(gift); !errors.Is(err, vfs.ErrNotRegular) {
		t.Error(err)
	}
	d.Before(nil)
	addReserved(t, log, "")
	d.create(7, 9, "")
	if info, err := d.Stat(gift); err != nil || !info.Dir {
		t.Error("the folder is not where it was")
	}
}

// passingOpens lets no file be opened whose name ends like that, for want of file handles.
func (d *disk) passingOpens(suffix string) (failed *int) {
	failed = new(int)
	d.fails(vfs.PassingErrors[0], func(op crashfs.Op) bool {
		if op.Kind == "open" && strings.HasSuffix(op.Name, suffix) {
			*failed++
			return true
		}
		return false
	})
	return failed
}

// Room for the next file that cannot be opened for want of file handles poisons nothing, and stays.
func TestWantOfFilesForTheSpare(t *testing.T) {
	d, log := rotatedOnAFullDisk(t)
	full := d.Used()
	failed := d.passingOpens(spareName)
	if err := log.Remove(2); *failed == 0 || !vfs.Passing(err) || log.Err() != nil {
		t.Errorf("%d failed, %v, poisoned %v", *failed, err, log.Err())
	}
	lsn := add(t, log, "second")
	d.Before(nil)
	if d.Used() != full {
		t.Errorf("%d bytes of %d are used: blocks were given up on a full disk", d.Used(), full)
	}
	ok(t, log.Sync(lsn))
	d.afterCuts(lsn)
	rotate(t, log, "head")
	ok(t, log.Close())
}

// A file that cannot be opened after it became the log's next one: nothing is written any more, because its name may be on the disk,
// and what went on in the file before would look like damage.
func TestWantOfFilesForANamedFile(t *testing.T) {
	d, log := newLog(t)
	lsn := add(t, log, "first")
	failed := d.passingOpens(suffix)
	if _, _, err := log.Rotate(text("head")); *failed == 0 || !vfs.Passing(err) {
		t.Errorf("%d failed, %v", *failed, err)
	}
	d.Before(nil)
	log.Append(2, []byte("second"))
	d.afterCuts(lsn)
}
