package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// unopened is a log at work, whose folder cannot be opened to be synced at some times.
type unopened struct {
	t       *testing.T
	d       *disk
	rnd     *rand.Rand
	log     *Log
	written map[uint64]wrote
	durable uint64 // frames up to here were said to be
	file    uint64 // so was the name of this file

	calls, from, to int // of the folder's syncs, those of these numbers fail
}

// before fails, and looks what a power cut at any such moment would leave.
func (u *unopened) before(op crashfs.Op) error {
	if op.Kind == "rename" && op.Name == spareName { // or a power cut could leave the next file without those before it
		least, _, err := u.d.Cut(crashfs.Loss{All: true}, logDir)
		ok(u.t, err)
		for _, id := range must(u.d.o.list())(u.t) {
			if _, err := least.Stat(u.d.o.path(id)); err != nil {
				u.t.Fatalf("another file gets its name before that of file %d is durable", id)
			}
		}
	}
	if op.Kind != "syncdir" {
		return nil
	}
	u.holds()
	u.calls++
	if u.calls > u.from && u.calls <= u.to {
		return fmt.Errorf("%w: too many open files", vfs.ErrNotSynced)
	}
	return nil
}

// holds checks that a power cut takes nothing that was acknowledged, and makes no hole.
func (u *unopened) holds() {
	u.t.Helper()
	for range 4 {
		k := u.d.cut(u.rnd).replay()
		if err := k.whole(u.written); err != nil || k.rec.LastLSN < u.durable || k.rec.LastFile < u.file {
			u.t.Fatalf("failing from %d to %d: frame %d and file %d are durable: %v, %+v", u.from, u.to, u.durable, u.file, err, k.rec)
		}
	}
}

// must does something that may fail for want of the folder, until it is done.
func (u *unopened) must(what string, do func() error) {
	u.t.Helper()
	for {
		before := u.calls
		err := do()
		if err == nil {
			u.holds()
			return
		}
		if !errors.Is(err, vfs.ErrNotSynced) || u.log.Err() != nil || u.calls == before || before >= u.to {
			u.t.Fatalf("%s, failing from %d to %d: %v, poisoned: %v", what, u.from, u.to, err, u.log.Err())
		}
	}
}

func (u *unopened) append() error {
	next := wrote{2, fmt.Sprint("frame ", u.log.LastLSN()+1)}
	u.written[u.log.LastLSN()+1] = next
	_, err := u.log.Append(next.kind, []byte(next.payload))
	return err
}

func (u *unopened) sync() error {
	last := u.log.LastLSN()
	err := u.log.Sync(last)
	if err == nil {
		u.durable = last
	}
	return err
}

func (u *unopened) rotate() error {
	file, lsn, err := u.log.Rotate(text("state"))
	if err == nil {
		u.file, u.durable = file, lsn
	}
	return err
}

// run does what script says: append, sync, rotate, delete.
func (u *unopened) run(script string) {
	for _, step := range script {
		switch step {
		case 'a':
			u.must("append", u.append)
		case 's':
			u.must("sync", u.sync)
		case 'r':
			u.must("rotate", u.rotate)
		case 'd':
			u.must("delete", func() error { return u.log.Remove(u.file) })
		}
	}
	u.must("sync", u.sync)
	ok(u.t, u.log.Close())
}

// The folder cannot be opened to be synced, at whatever time, once or several times: no fsync has failed, so the log is not poisoned,
// and what failed succeeds as soon as the folder can be opened. What is said to be durable is, and no power cut makes a hole.
func TestFolderCannotBeOpened(t *testing.T) {
	for _, script := range []string{"asrasrdasr", "rrard", "arrasdr", "srdrd", "sas"} {
		for _, times := range []int{1, 2, 3, 4, 9} {
			for from := 0; ; from++ {
				d := newDisk(t)
				u := &unopened{t: t, rnd: rand.New(rand.NewPCG(3, uint64(from))), from: from, to: from + times, written: map[uint64]wrote{}}
				u.log = d.create(1, 1, "state 1") // an earlier process, which was killed
				ok(t, u.append())
				u.d = d.kill()
				u.d.Before(u.before)
				u.log = u.d.createLater(2, 2, "state 2")
				if u.run(script); u.calls <= from {
					break
				}
			}
		}
	}
}

// Create, which promises a name that is durable, fails without it; the next process goes on.
func TestFolderCannotBeOpenedAtCreate(t *testing.T) {
	d := newDisk(t)
	d.fails(vfs.ErrNotSynced, kinds("syncdir"))
	if log, err := Create(d.o, 1, 1, nil); log != nil || !errors.Is(err, vfs.ErrNotSynced) || errors.Is(err, ErrPoisoned) {
		t.Fatalf("created: %v", err)
	}
	d.Before(nil)
	k := d.replay()
	ok(t, d.create(k.rec.LastFile+1, k.rec.LastLSN+1, "").Close())
}

// The space that an earlier process left reserved is not given up for that: it may be all that a full disk has.
func TestFolderCannotBeOpenedForTheSpare(t *testing.T) {
	d := newDisk(t)
	ok(t, d.create(1, 1, "").Close())
	d.write(d.o.sparePath(), 0, ownBytes(14000))
	log := d.createLater(2, 1, "")
	syncs := 0
	kept := func(op crashfs.Op) error {
		if op.Name == spareName && (op.Kind == "remove" || op.Kind == "create" && syncs < 3) {
			t.Errorf("%s of the spare", op.Kind)
		}
		return nil
	}
	d.Before(func(op crashfs.Op) error {
		if op.Kind == "syncdir" {
			if syncs++; syncs > 1 { // the first is that of the names of what was recovered
				return vfs.ErrNotSynced
			}
		}
		return kept(op)
	})
	if _, err := log.Append(2, nil); !errors.Is(err, vfs.ErrNotSynced) || log.Err() != nil {
		t.Errorf("append: %v, poisoned: %v", err, log.Err())
	}
	d.Before(func(op crashfs.Op) error {
		if op.Kind == "rename" {
			syncs = 3 // the spare is file 2, and there may be another one
		}
		return kept(op)
	})
	add(t, log, "")
	if _, err := d.Stat(d.o.path(2)); err != nil || syncs != 3 {
		t.Errorf("append again: %v", err)
	}
}

// rotatedOnAFullDisk is a log that has just gone on in its second file.
func rotatedOnAFullDisk(t *testing.T) (*disk, *Log) {
	t.Helper()
	d, log := newLog(t)
	add(t, log, "first")
	d.fill(0)
	rotate(t, log, "head")
	return d, log
}

// On a full disk what a checkpoint does not need any more becomes the spare, also where the folder could not be opened once.
func TestOldFileBecomesTheSpareAfterAll(t *testing.T) {
	d, log := rotatedOnAFullDisk(t)
	full, calls := d.Used(), 0
	d.fails(vfs.ErrNotSynced, func(op crashfs.Op) bool {
		if op.Kind == "syncdir" {
			calls++
		}
		return op.Kind == "syncdir" && calls == 1
	})
	if err := log.Remove(2); !errors.Is(err, vfs.ErrNotSynced) {
		t.Fatal(err)
	}
	ok(t, log.Remove(2))
	if d.Used() != full {
		t.Errorf("%d bytes of %d are used: blocks were given up on a full disk", d.Used(), full)
	}
	d.fill(0) // somebody else takes them
	for range 200 {
		if _, err := log.AppendReserved(3, []byte("an eviction")); errors.Is(err, vfs.ErrNoSpace) {
			checkpoint(t, log)
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// The same, where a frame is written or the log is rotated before the file could be removed.
func TestRotateBesideAFileThatIsNotRemoved(t *testing.T) {
	d, log := rotatedOnAFullDisk(t)
	d.fails(vfs.ErrNotSynced, kinds("syncdir"))
	if err := log.Remove(2); !errors.Is(err, vfs.ErrNotSynced) {
		t.Fatal(err)
	}
	d.Before(nil)
	rotate(t, log, "head")
}

// afterCuts expects of every power cut that it leaves a sound log with frame lsn.
func (d *disk) afterCuts(lsn uint64) {
	d.t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		if k := d.cut(rnd).replay(); len(k.rec.Damage) > 0 || k.rec.LastLSN < lsn {
			d.t.Fatalf("frame %d of %d is the last, %v", k.rec.LastLSN, lsn, strings.TrimSpace(fmt.Sprint(k.rec.Damage)))
		}
	}
}
