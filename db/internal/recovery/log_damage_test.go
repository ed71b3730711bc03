package recovery_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/remove"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

// Two processes, one after the other, die between the renaming of a log file and the sync of its folder; a power cut then keeps the
// second name and not the first. Nothing was in that file: the log has no hole.
func TestLogNameLostBeforeAnother(t *testing.T) {
	w := crashCase(t, crashMode{power: true})
	w.steps(t, crashOp{kind: "put", chat: 0, n: len(crashChats()[0].p.Tokens)})
	dies := func(w *crashRun, o crashOp) *crashfs.Disk {
		var named atomic.Bool
		w.d.Before(func(op crashfs.Op) error {
			if named.Load() {
				return errDisk
			}
			if op.Kind == "rename" && strings.HasPrefix(op.Name, storetest.LogDir) {
				named.Store(true)
			}
			return nil
		})
		if err := w.do(o); err == nil {
			t.Fatal("the disk did not fail")
		}
		return w.dies(t)
	}
	next := nextRun(t, dies(w, crashOp{kind: "checkpoint"}), w.k, newCrashJournal(w.k))
	next.steps(t, crashOp{kind: "open"})
	dies(next, crashOp{kind: "put", chat: 2, n: 60})
	dirs := crashtest.NewDirs(t)
	for seed := range uint64(100) {
		image := storetest.Must(crashtest.CutAndReboot(next.d, rand.New(rand.NewPCG(seed, 5)), dirs))(t)
		names, _ := image.List(filepath.Join(image.Dir(), storetest.LogDir))
		last := &crashRun{d: image, k: w.k, j: newCrashJournal(w.k)}
		if err := last.do(crashOp{kind: "open"}); err != nil {
			t.Fatal(seed, names, err)
		}
		rep, err := admin.VerifyStore(t.Context(), last.s, admin.VerifyOptions{})
		doubts := storetest.Engine(last.s).Recovered.Doubts
		last.kill()
		if err != nil || len(rep.Damage) > 0 || len(doubts) > 0 {
			t.Fatalf("cut %d: %v: damage %v, doubts %v, %v", seed, names, rep.Damage, doubts, err)
		}
	}
}

// deletedInLog is a store in which the frame of a deletion is in the log only, and whose bytes an open match keeps from being
// destroyed. What is rebuilt without that frame has the prompt again.
func deletedInLog(t *testing.T) (w *crashRun, p kv.Prompt) {
	t.Helper()
	d := crashtest.NewDisk(crashtest.NewDirs(t).Next())
	o := storetest.Options()
	s := storetest.Must(storetest.TryOpen(d, d.Dir(), o))(t)
	m := storetest.Model(t, s, crashtest.Plain())
	p = kv.Tokens(crashtest.Tokens(1, 48)...)
	storetest.Put(t, m, p)
	storetest.OK(t, s.Checkpoint(t.Context()))
	x := storetest.Match(t, m, p)
	if got, err := m.Delete(t.Context(), p.Prefix(10)); err != nil || got.Blocks != 3 {
		t.Fatal(got, err)
	}
	return &crashRun{s: s, d: d, held: []crashHeld{{x: x}}}, p
}

// namesLog checks that an error says which file of the log could not be read, where, and why; and that it says damage only of what
// the disk cannot read.
func namesLog(t *testing.T, err, why error) {
	t.Helper()
	if !errors.Is(err, why) || !strings.Contains(err.Error(), ".wal") || !strings.Contains(err.Error(), "offset 0") {
		t.Errorf("on a log that cannot be read: %v", err)
	}
	if errors.Is(err, db.ErrCorrupt) == vfs.Passing(why) {
		t.Errorf("damage: %t of %v", errors.Is(err, db.ErrCorrupt), err)
	}
}

// Opening a store whose log cannot be read just now fails, and loses no deletion that was acknowledged.
func TestOpenOfAnUnreadableLog(t *testing.T) {
	for _, why := range append(vfs.PassingErrors, errDisk) {
		t.Run(fmt.Sprint(why), func(t *testing.T) {
			w, _ := deletedInLog(t)
			d := w.dies(t)
			o := storetest.Options()
			for _, o.ReadOnly = range []bool{true, false} {
				failBehind(d, 0, func(op crashfs.Op) bool { return op.Kind == "read" && strings.HasPrefix(op.Name, storetest.LogDir) }, func() error { return why })
				_, err := storetest.TryOpen(d, d.Dir(), o)
				namesLog(t, err, why)
				d.Before(nil)
				s := storetest.Must(storetest.TryOpen(d, d.Dir(), o))(t)
				if doubts := storetest.Engine(s).Recovered.Doubts; len(doubts) > 0 {
					t.Errorf("the index was rebuilt: %v", doubts)
				}
				if n := storetest.Engine(s).Ledger.Counts().Blocks; n != 0 {
					t.Errorf("%d deleted blocks are back", n)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// So does rebuilding a damaged index of an open store, of which neither the log nor a segment can be read just now: it suspends itself, and
// Resume says why, until they can be read, and then goes on with all that it had.
func TestIndexCannotBeRebuiltNow(t *testing.T) {
	for where, kind := range map[string]string{storetest.LogDir: "read", storetest.SegmentsDir: "open"} {
		for _, why := range append(vfs.PassingErrors, errDisk) {
			t.Run(fmt.Sprint(where, " ", why), func(t *testing.T) {
				w, p := deletedInLog(t)
				defer w.kill()
				d, s := w.d, w.s
				m, kept := storetest.Model(t, s, crashtest.Plain()), kv.Tokens(crashtest.Tokens(2, 48)...)
				storetest.Put(t, m, kept)
				x := storetest.Match(t, m, kept)
				w.held = append(w.held, crashHeld{x: x})
				failBehind(d, 0, func(op crashfs.Op) bool { return op.Kind == kind && strings.HasPrefix(op.Name, where) }, func() error { return why })
				losesIndex(t, s)
				if _, _, err := m.Probe(t.Context(), kept, db.MatchOptions{}); !errors.Is(err, db.ErrSuspended) {
					t.Errorf("probe while the index cannot be rebuilt: %v", err)
				}
				err := s.Resume(t.Context())
				if where == storetest.LogDir {
					namesLog(t, err, why)
				} else if !errors.Is(err, why) {
					t.Errorf("resumed: %v", err)
				}
				d.Before(nil)
				storetest.OK(t, s.Resume(t.Context()))
				storetest.Expect(t, m, p, 0)
				storetest.Expect(t, m, kept, 48)
				if err := x.View(t.Context(), func(db.StoredPlane) error { return nil }); err != nil || x.Tokens() != 48 {
					t.Errorf("a match that was open covers %d tokens, %v", x.Tokens(), err)
				}
				storetest.Put(t, m, kv.Tokens(crashtest.Tokens(3, 48)...))
			})
		}
	}
}

// newestLog is the newest file of a store's log, and what it holds.
func newestLog(t *testing.T, dir string) (path string, b []byte) {
	t.Helper()
	all := storetest.Must(filepath.Glob(filepath.Join(dir, storetest.LogDir, "*.wal")))(t)
	path = slices.Max(all)
	return path, storetest.Must(os.ReadFile(path))(t)
}

// newFrame is where the first frame begins that do appends to a store's log.
func newFrame(t *testing.T, dir string, do func()) (at int) {
	t.Helper()
	path, before := newestLog(t, dir)
	do()
	now, after := newestLog(t, dir)
	if now != path {
		t.Fatalf("%s is the newest log file, and was %s", now, path)
	}
	for at < len(before) && before[at] == after[at] {
		at++
	}
	return at
}

// spoilFrame changes a byte of the frame that begins there.
func spoilFrame(t *testing.T, dir string, at int) {
	t.Helper()
	path, b := newestLog(t, dir)
	storetest.Write(t, path, int64(at)+60, []byte{^b[at+60]})
}

// The frame of a move is damaged; what was moved was deleted, and the new place was destroyed before the old one.
func TestDeletedBehindDamagedMove(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	dir := s.Dir()
	other, p := kv.Tokens(crashtest.Tokens(7, 32)...), kv.Tokens(crashtest.Tokens(1, 32)...)
	storetest.Put(t, m, other)
	storetest.Put(t, m, p)
	storetest.OK(t, s.Checkpoint(t.Context()))
	reader := storetest.Match(t, m, other) // keeps what is deleted
	key := storetest.Key(t, s, m, p, 1)
	at := newFrame(t, dir, func() { storetest.MoveAll(t, s, func(x index.Entry) bool { return x.Key == key }) })
	to := storetest.Place(t, s, m, p, 1, 0)
	storetest.Must(m.Delete(t.Context(), p.Prefix(17)))(t)
	storetest.Expect(t, m, p, 16)
	storetest.Put(t, m, kv.Tokens(crashtest.Tokens(9, 32)...)) // shows that the frames before were durable
	image := storetest.Copy(t, dir)
	reader.Close()
	storetest.ZeroPlace(t, image, to, to.Length)
	spoilFrame(t, image, at)
	s = storetest.Open(t, image, storetest.Options())
	if got, _ := storetest.Restore(t, storetest.Model(t, s, crashtest.Plain()), p); got != 16 {
		t.Errorf("%d tokens, expected 16: what was deleted is back", got)
	}
}

// A deletion takes what hangs below, though the frame that said so for that is damaged, and though the prefix was put again since.
func TestDeletedBelowBehindDamage(t *testing.T) {
	defer remove.SetBatches(2, 0)()
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	dir := s.Dir()
	other, p := kv.Tokens(crashtest.Tokens(7, 32)...), kv.Tokens(crashtest.Tokens(1, 64)...)
	storetest.Put(t, m, other)
	storetest.Put(t, m, p)
	storetest.OK(t, s.Checkpoint(t.Context()))
	reader := storetest.Match(t, m, other)                                                   // keeps what is deleted
	at := newFrame(t, dir, func() { storetest.Must(m.Delete(t.Context(), p.Prefix(1)))(t) }) // the deepest blocks first
	storetest.Put(t, m, p.Prefix(32))
	image := storetest.Copy(t, dir)
	reader.Close()
	spoilFrame(t, image, at)
	s = storetest.Open(t, image, storetest.Options())
	if got, _ := storetest.Restore(t, storetest.Model(t, s, crashtest.Plain()), p); got != 32 {
		t.Errorf("%d tokens, expected 32: what was deleted is back", got)
	}
}
