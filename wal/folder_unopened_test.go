package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// unopened is a log at work, whose folder cannot be opened to be synced at some times.
type unopened struct {
	t       *testing.T
	m       *memFS
	rnd     *rand.Rand
	log     *Log
	written map[uint64]wrote
	durable uint64 // frames up to here were said to be
	file    uint64 // so was the name of this file

	calls, from, to int // of the folder's syncs, those of these numbers fail
}

// before fails, and looks what a power cut at any such moment would leave.
func (u *unopened) before(op, name string) error {
	if op == "rename" && name == memOptions(u.m).sparePath() {
		for have := range u.m.names { // or a power cut could leave the next one without it
			if strings.HasSuffix(have, suffix) && u.m.sure[have] == nil {
				u.t.Fatalf("another file gets its name before that of %s is durable", have)
			}
		}
	}
	if op != "syncdir" {
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
		k := must[kept](u.t)(replayAll(memOptions(u.m.powerCut(u.rnd))))
		if err := errors.Join(k.same(u.written), k.consecutive()); err != nil || len(k.rec.Damage) > 0 ||
			k.rec.LastLSN < u.durable || k.rec.LastFile < u.file {
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

// The folder cannot be opened to be synced, at whatever time, once or several times: no fsync has failed, so the log is not poisoned,
// and what failed succeeds as soon as the folder can be opened. What is said to be durable is, and no power cut makes a hole.
func TestFolderCannotBeOpened(t *testing.T) {
	for _, script := range []string{"asrasrdasr", "rrard", "arrasdr", "srdrd", "sas"} {
		for _, times := range []int{1, 2, 3, 4, 9} {
			for from := 0; ; from++ {
				m := newMemFS()
				old := must[*Log](t)(Create(memOptions(m), 1, 1, []byte("state 1"))) // an earlier process, which was killed
				u := &unopened{t: t, rnd: rand.New(rand.NewPCG(3, uint64(from))), from: from, to: from + times, written: map[uint64]wrote{}}
				u.log = old
				if err := u.append(); err != nil {
					t.Fatal(err)
				}
				u.m = m.kill()
				u.m.before = u.before
				u.log = must[*Log](t)(CreateLater(memOptions(u.m), 2, 2, func() []byte { return []byte("state 2") }))
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
				if err := u.log.Close(); err != nil {
					t.Fatal(err)
				}
				if u.calls <= from {
					break
				}
			}
		}
	}
}

// Create, which promises a name that is durable, fails without it; the next process goes on.
func TestFolderCannotBeOpenedAtCreate(t *testing.T) {
	m := newMemFS()
	m.before = func(op, _ string) error {
		if op == "syncdir" {
			return vfs.ErrNotSynced
		}
		return nil
	}
	if log, err := Create(memOptions(m), 1, 1, nil); log != nil || !errors.Is(err, vfs.ErrNotSynced) || errors.Is(err, ErrPoisoned) {
		t.Fatalf("created: %v", err)
	}
	m.before = nil
	k := must[kept](t)(replayAll(memOptions(m)))
	if log, err := Create(memOptions(m), k.rec.LastFile+1, k.rec.LastLSN+1, nil); err != nil || log.Close() != nil {
		t.Errorf("created again: %v, %+v", err, k.rec)
	}
}

// The space that an earlier process left reserved is not given up for that: it may be all that a full disk has.
func TestFolderCannotBeOpenedForTheSpare(t *testing.T) {
	m := newMemFS()
	o := memOptions(m)
	if err := must[*Log](t)(Create(o, 1, 1, nil)).Close(); err != nil {
		t.Fatal(err)
	}
	f := must[vfs.File](t)(m.Open(o.sparePath(), false))
	must[int](t)(f.WriteAt(ownBytes(14000), 0))
	spare := m.names[o.sparePath()]
	log := must[*Log](t)(CreateLater(o, 2, 1, func() []byte { return nil }))
	syncs := 0
	m.before = func(op, _ string) error {
		if op != "syncdir" {
			return nil
		}
		if syncs++; syncs > 1 { // the first is that of the names of what was recovered
			return vfs.ErrNotSynced
		}
		return nil
	}
	if _, err := log.Append(2, nil); !errors.Is(err, vfs.ErrNotSynced) || log.Err() != nil || m.names[o.sparePath()] != spare {
		t.Errorf("append: %v, poisoned: %v, %v", err, log.Err(), m.names)
	}
	m.before = nil
	if _, err := log.Append(2, nil); err != nil || m.names[o.path(2)] != spare {
		t.Errorf("append again: %v, %v", err, m.names)
	}
}

// rotatedOnAFullDisk is a log that has just gone on in its second file.
func rotatedOnAFullDisk(t *testing.T) (*memFS, *Log) {
	t.Helper()
	m := newMemFS()
	log := must[*Log](t)(Create(memOptions(m), 1, 1, nil))
	must[uint64](t)(log.Append(2, []byte("first")))
	m.limit = m.used()
	if _, _, err := log.Rotate(text("head")); err != nil {
		t.Fatal(err)
	}
	return m, log
}

// On a full disk what a checkpoint does not need any more becomes the spare, also where the folder could not be opened once.
func TestOldFileBecomesTheSpareAfterAll(t *testing.T) {
	m, log := rotatedOnAFullDisk(t)
	calls := 0
	m.before = func(op, _ string) error {
		if op == "syncdir" {
			if calls++; calls == 1 {
				return vfs.ErrNotSynced
			}
		}
		return nil
	}
	if err := log.Remove(2); !errors.Is(err, vfs.ErrNotSynced) {
		t.Fatal(err)
	}
	if err := log.Remove(2); err != nil {
		t.Fatal(err)
	}
	if m.used() != m.limit {
		t.Errorf("%d bytes of %d are used: blocks were given up on a full disk", m.used(), m.limit)
	}
	m.limit = m.used() // somebody else takes them
	for i := range 200 {
		if _, err := log.AppendReserved(3, []byte("an eviction")); errors.Is(err, vfs.ErrNoSpace) {
			if _, _, rerr := log.Rotate(text("head")); rerr != nil {
				t.Fatalf("frame %d: %v; rotate: %v", i, err, rerr)
			}
			if err := log.Remove(log.FileID()); err != nil {
				t.Fatal(err)
			}
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// The same, where a frame is written or the log is rotated before the file could be removed.
func TestRotateBesideAFileThatIsNotRemoved(t *testing.T) {
	m, log := rotatedOnAFullDisk(t)
	m.before = func(op, _ string) error {
		if op == "syncdir" {
			return vfs.ErrNotSynced
		}
		return nil
	}
	if err := log.Remove(2); !errors.Is(err, vfs.ErrNotSynced) {
		t.Fatal(err)
	}
	m.before = nil
	if _, _, err := log.Rotate(text("head")); err != nil {
		t.Errorf("rotate: %v", err)
	}
}

// Room for the next file that cannot be opened for want of file handles poisons nothing, and stays.
func TestWantOfFilesForTheSpare(t *testing.T) {
	m, log := rotatedOnAFullDisk(t)
	failed := failOpens(m, "next.wal.tmp")
	if err := log.Remove(2); *failed == 0 || !vfs.Passing(err) || log.Err() != nil {
		t.Errorf("%d failed, %v, poisoned %v", *failed, err, log.Err())
	}
	lsn := must[uint64](t)(log.Append(2, []byte("second")))
	m.before = nil
	if m.used() != m.limit {
		t.Errorf("%d bytes of %d are used: blocks were given up on a full disk", m.used(), m.limit)
	}
	if err := log.Sync(lsn); err != nil {
		t.Fatal(err)
	}
	afterCuts(t, m, lsn)
	if _, _, err := log.Rotate(text("head")); err != nil {
		t.Error(err)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
}

// A file that cannot be opened after it became the log's next one: nothing is written any more, because its name may be on the disk,
// and what went on in the file before would look like damage.
func TestWantOfFilesForANamedFile(t *testing.T) {
	m := newMemFS()
	log := must[*Log](t)(Create(memOptions(m), 1, 1, nil))
	lsn := must[uint64](t)(log.Append(2, []byte("first")))
	failed := failOpens(m, ".wal")
	if _, _, err := log.Rotate(text("head")); *failed == 0 || !vfs.Passing(err) {
		t.Errorf("%d failed, %v", *failed, err)
	}
	m.before = nil
	log.Append(2, []byte("second"))
	afterCuts(t, m, lsn)
}

// failOpens fails every open of files whose names end like that, and counts them.
func failOpens(m *memFS, suffix string) *int {
	failed := new(int)
	m.before = func(op, file string) error {
		if op == "open" && strings.HasSuffix(file, suffix) {
			*failed++
			return vfs.PassingErrors[0]
		}
		return nil
	}
	return failed
}

// afterCuts expects of every power cut that it leaves a sound log with frame lsn.
func afterCuts(t *testing.T, m *memFS, lsn uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		found := uint64(0)
		rep, err := Replay(memOptions(m.powerCut(rnd)), func(f Frame) error { found = f.LSN; return nil })
		if err != nil || len(rep.Damage) > 0 || found < lsn {
			t.Fatalf("frame %d of %d is the last, %v, %v", found, lsn, rep.Damage, err)
		}
	}
}
