package db

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

// suspendsItself has the index of w's store found damaged while the segments cannot be opened or mapped: the store suspends itself.
func (w *crashRun) suspendsItself(t *testing.T, also func(crashfs.Op) error) {
	t.Helper()
	w.d.Before(func(op crashfs.Op) error {
		if (op.Kind == "map" || op.Kind == "open") && strings.HasPrefix(op.Name, segmentsDir) {
			return passingErrors[0]
		}
		if also != nil {
			return also(op)
		}
		return nil
	})
	w.s.indexDamaged(errors.New("a test says so"))
	var err error
	for deadline := time.Now().Add(time.Minute); !errors.Is(err, ErrSuspended) && time.Now().Before(deadline); {
		_, err = w.s.Stats()
	}
	w.d.Before(nil)
	if !errors.Is(err, ErrSuspended) {
		t.Fatalf("not suspended: %v", err)
	}
}

// A Close that reports success has made durable what was acknowledged, also of a store that suspended itself.
func TestAdvNCloseAfterSuspendedItself(t *testing.T) {
	w := crashCase(t, crashMode{})
	w.steps(t, putAll()...)
	w.suspendsItself(t, nil)
	w.steps(t, crashOp{kind: "close"}) // fails the test if it is not nil
	w.d.Crash()
	w.cuts(t, 8, "")
}

// So has a Suspend.
func TestAdvNSuspendAfterSuspendedItself(t *testing.T) {
	w := crashCase(t, crashMode{})
	w.steps(t, putAll()...)
	w.suspendsItself(t, nil)
	if err := w.s.Suspend(ctx); err != nil {
		t.Skip(err)
	}
	copy(w.j.safe, w.j.have) // it says that there was a checkpoint
	w.d.Crash()
	w.kill()
	w.cuts(t, 8, "")
}

// An fsync that failed is reported by Close, also of a store that suspended itself.
func TestAdvNCloseTellsOfAFailedSync(t *testing.T) {
	w := crashCase(t, crashMode{})
	w.steps(t, putAll()...)
	w.suspendsItself(t, func(op crashfs.Op) error {
		if op.Kind == "sync" && strings.HasPrefix(op.Name, walDir) {
			return errDisk
		}
		return nil
	})
	if _, err := w.d.Stat(filepath.Join(w.d.Dir(), unsyncedName)); err != nil {
		t.Fatal("no fsync failed")
	}
	if err := w.s.Close(); err == nil {
		t.Error("an fsync had failed, and Close says nothing")
	}
	w.s = nil
}

// A store that was poisoned before it suspended itself says so at Close.
func TestAdvNClosePoisonedThenSuspendedItself(t *testing.T) {
	w := crashCase(t, crashMode{})
	w.steps(t, putAll()...)
	w.d.Before(func(op crashfs.Op) error {
		if op.Kind == "sync" {
			return errDisk
		}
		return nil
	})
	if err := w.s.Sync(ctx); err == nil {
		t.Fatal("synced")
	}
	w.suspendsItself(t, nil)
	if err := w.s.Close(); err == nil {
		t.Error("an fsync had failed, and Close says nothing")
	}
	w.s = nil
}

// A read-only store that has no LOCK can be suspended and resumed.
func TestAdvNReadOnlyWithoutLockResumes(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	model(t, s, plain())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		t.Fatal(err)
	}
	o := options()
	o.ReadOnly = true
	s = open(t, dir, o)
	if err := s.Suspend(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Resume(ctx); err != nil {
		t.Error(err)
	}
}

// A directory that cannot be opened for want of file handles when the log is begun poisons nothing: no fsync failed.
func TestAdvNWantOfFilesAtTheFirstFrame(t *testing.T) {
	w := crashCase(t, crashMode{})
	w.steps(t, putAll()...)
	w.steps(t, crashOp{kind: "reopen"})
	w.d.Before(func(op crashfs.Op) error {
		if op.Kind == "syncdir" {
			return passingErrors[0]
		}
		return nil
	})
	err := w.s.Sync(ctx)
	t.Log(err)
	w.d.Before(nil)
	if err := w.do(crashOp{kind: "put", chat: 4, n: 80}); err != nil {
		t.Error(err)
	}
}

// closesOnDamage is a store that a process that was killed has put into, opened and matched by the next one; then its index is damaged.
func closesOnDamage(t *testing.T, power bool) *crashRun {
	w := crashCase(t, crashMode{power: power})
	w.steps(t, crashOp{kind: "put", chat: 0, n: 91}, crashOp{kind: "checkpoint"})
	w.steps(t, putAll()...)
	w.d.Crash()
	w.kill()
	image, err := w.d.Kill(newCrashDirs(t).next())
	if err != nil {
		t.Fatal(err)
	}
	next := &crashRun{d: image, k: w.k, j: w.j}
	t.Cleanup(next.kill)
	next.steps(t, crashOp{kind: "open"})
	x, err := next.model(0).Match(ctx, crashChats()[0].p, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x.Close()
	if next.s.eng.wal.Begun() {
		t.Log("the log is begun")
	}
	name := filepath.Join(image.Dir(), indexName)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := 2 * os.Getpagesize(); i < len(b); i++ {
		b[i] ^= 0x55
	}
	if _, err := f.WriteAt(b[2*os.Getpagesize():], int64(2*os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	return next
}

// A Close that met a damaged index, and says that all is well, has made durable what an earlier process left.
func TestAdvNCloseOnDamagedIndex(t *testing.T) {
	w := closesOnDamage(t, false)
	w.steps(t, crashOp{kind: "close"})
	w.d.Crash()
	w.cuts(t, 8, "")
}

func TestAdvNSuspendOnDamagedIndex(t *testing.T) {
	w := closesOnDamage(t, false)
	if err := w.s.Suspend(ctx); err != nil {
		t.Skip(err)
	}
	copy(w.j.safe, w.j.have)
	w.d.Crash()
	w.kill()
	w.cuts(t, 8, "")
}

// A log that cannot be read for a moment while the index is rebuilt, or the store opened, loses no deletion that was acknowledged: the
// rebuild fails instead, and so does the Open.
func TestAdvNLogUnreadableForAMoment(t *testing.T) {
	for _, fail := range []error{passingErrors[2], errDisk} {
		for _, how := range []string{"rebuild", "open"} {
			t.Run(fmt.Sprint(how, " ", fail), func(t *testing.T) {
				d := newCrashDisk(newCrashDirs(t).next())
				o := options()
				o.fs = d
				s, err := Open(ctx, d.Dir(), o)
				if err != nil {
					t.Fatal(err)
				}
				m := model(t, s, plain())
				p := kv.Tokens(tokens(1, 48)...)
				put(t, m, p)
				if err := s.Checkpoint(ctx); err != nil {
					t.Fatal(err)
				}
				x, err := m.Match(ctx, p, MatchOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer x.Close()
				if got, err := m.Delete(ctx, p.Prefix(10)); err != nil || got.Blocks != 3 {
					t.Fatal(got, err)
				}
				hook := func(op crashfs.Op) error {
					if op.Kind == "read" && strings.HasPrefix(op.Name, walDir) {
						return fail
					}
					return nil
				}
				if how == "rebuild" {
					d.Before(hook)
					s.indexDamaged(errors.New("a test says so"))
					eventually(t, "the rebuild ends", func() bool { return !s.damaged.Load() })
					d.Before(nil)
					if err := s.Resume(ctx); err != nil {
						t.Fatal(err)
					}
				} else {
					d.Crash()
					(&crashRun{s: s, d: d}).kill()
					if d, err = d.Kill(newCrashDirs(t).next()); err != nil {
						t.Fatal(err)
					}
					o.fs = d
					d.Before(hook)
					if s, err = Open(ctx, d.Dir(), o); err != nil {
						t.Log(err)
						d.Before(nil)
						if s, err = Open(ctx, d.Dir(), o); err != nil {
							t.Fatal(err)
						}
					}
					d.Before(nil)
					defer s.Close()
					m = model(t, s, plain())
				}
				expect(t, m, p, 0)
			})
		}
	}
}

// After an fsync of the index has failed, every later write says so, as does Stats.
func TestAdvNFailedSyncOfTheIndex(t *testing.T) {
	w := crashCase(t, crashMode{power: true})
	w.steps(t, putAll()...)
	w.steps(t, crashOp{kind: "checkpoint"}, crashOp{kind: "delete", chat: 4, n: 60})
	var failed []crashfs.Op
	w.d.Before(func(op crashfs.Op) error {
		if op.Kind == "sync" && strings.HasPrefix(op.Name, indexName) || op.Kind == "syncdir" && op.Name == "." {
			failed = append(failed, op)
			return errDisk
		}
		return nil
	})
	_, err := w.s.Compact(ctx, CompactOptions{LiveShare: 1})
	t.Log("compact:", err)
	w.d.Before(nil)
	t.Log(failed)
	st, _ := w.s.Stats()
	if !st.Poisoned {
		t.Error("Stats does not say so")
	}
	if err := w.do(crashOp{kind: "put", chat: 4, n: 80}); err == nil {
		t.Error("a put succeeded")
	} else {
		t.Log("put:", errors.Is(err, ErrPoisoned), err)
	}
	if err := w.do(crashOp{kind: "delete", chat: 3, n: 80}); err == nil {
		t.Error("a deletion succeeded")
	}
	t.Log(w.s.Checkpoint(ctx))
	err = w.s.Close()
	t.Log("close:", err)
	if err == nil {
		t.Error("close says nothing")
	}
	w.s = nil
}

// What a read fails for a moment, while it should be written once more after a failed fsync, is not taken for written.
func TestAdvNRewriteUnreadableForAMoment(t *testing.T) {
	for _, where := range []string{walDir, segmentsDir} {
		for _, fail := range []error{passingErrors[2], errDisk} {
			t.Run(fmt.Sprint(where, " ", fail), func(t *testing.T) {
				w := crashCase(t, crashMode{power: true})
				w.steps(t, crashOp{kind: "put", chat: 0, n: 50}, crashOp{kind: "put", chat: 4, n: 70})
				w.d.Before(func(op crashfs.Op) error {
					if op.Kind == "sync" && strings.HasPrefix(op.Name, where) {
						return errDisk
					}
					return nil
				})
				second := crashOp{kind: "put", chat: 2, n: 100}
				if err := w.do(second); err == nil {
					t.Fatal("acknowledged though its fsync failed")
				}
				w.kill()
				var writes, failed int
				w.d.Before(func(op crashfs.Op) error {
					if op.Kind == "write" && strings.HasPrefix(op.Name, segmentsDir) {
						writes++
					}
					if op.Kind == "read" && strings.HasPrefix(op.Name, where) && (writes > 0 || where == segmentsDir && op.Len >= 4096) {
						failed++
						return fail
					}
					return nil
				})
				w.steps(t, crashOp{kind: "open"})
				w.d.Before(nil)
				t.Log("reads that failed:", failed)
				if _, err := w.s.eng.fs.Stat(w.s.eng.path(unsyncedName)); err != nil {
					t.Log("the mark is gone")
				}
				if err := w.do(second); err != nil { // in a sound way
					t.Skip(err)
				}
				w.steps(t, second, crashOp{kind: "put", chat: 1, n: 90})
				w.d.Crash()
				w.kill()
				w.cuts(t, 8, "")
			})
		}
	}
}

// After the index's fsync has failed, what only the log would hold says so, too.
func TestAdvNFailedSyncOfTheIndexLogOnly(t *testing.T) {
	w := crashCase(t, crashMode{})
	w.steps(t, putAll()...)
	w.steps(t, crashOp{kind: "checkpoint"}, crashOp{kind: "ref", chat: 0, name: "r", n: 60}, crashOp{kind: "delete", chat: 4, n: 60})
	w.d.Before(func(op crashfs.Op) error {
		if op.Kind == "syncdir" && op.Name == "." {
			return errDisk
		}
		return nil
	})
	_, err := w.s.Compact(ctx, CompactOptions{LiveShare: 1})
	w.d.Before(nil)
	if err == nil {
		t.Fatal("compacted")
	}
	d := plain()
	d.Name = "another"
	if _, err := w.s.Model(ctx, d); err == nil {
		t.Error("Model succeeded")
	}
	if err := w.do(crashOp{kind: "unref", name: "r"}); err == nil {
		t.Error("DeleteRef succeeded")
	}
	if err := w.s.Sync(ctx); err == nil {
		t.Error("Sync succeeded")
	}
	if err := w.s.Retire(ctx, w.model(2).Fingerprint()); err == nil {
		t.Error("Retire succeeded")
	}
}
