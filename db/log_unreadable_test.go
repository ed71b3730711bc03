package db

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

// deletedInLog is a store in which the frame of a deletion is in the log only, and whose bytes an open match keeps from being
// destroyed. What is rebuilt without that frame has the prompt again.
func deletedInLog(t *testing.T) (d *crashfs.Disk, s *Store, p kv.Prompt) {
	t.Helper()
	d = newCrashDisk(newCrashDirs(t).Next())
	o := options()
	o.fs = d
	s, err := Open(ctx, d.Dir(), o)
	if err != nil {
		t.Fatal(err)
	}
	m := model(t, s, plain())
	p = kv.Tokens(tokens(1, 48)...)
	put(t, m, p)
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	x, err := m.Match(ctx, p, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	if got, err := m.Delete(ctx, p.Prefix(10)); err != nil || got.Blocks != 3 {
		t.Fatal(got, err)
	}
	return d, s, p
}

// logFails has every read of the log fail.
func logFails(d *crashfs.Disk, why error) {
	failBehind(d, 0, func(op crashfs.Op) bool { return op.Kind == "read" && strings.HasPrefix(op.Name, walDir) }, func() error { return why })
}

// namesLog checks that an error says which file of the log could not be read, where, and why; and that it says damage only of what
// the disk cannot read.
func namesLog(t *testing.T, err, why error) {
	t.Helper()
	if !errors.Is(err, why) || !strings.Contains(err.Error(), ".wal") || !strings.Contains(err.Error(), "offset 0") {
		t.Errorf("on a log that cannot be read: %v", err)
	}
	if errors.Is(err, ErrCorrupt) == vfs.Passing(why) {
		t.Errorf("damage: %t of %v", errors.Is(err, ErrCorrupt), err)
	}
}

// Opening a store whose log cannot be read just now fails, and loses no deletion that was acknowledged.
func TestOpenOfAnUnreadableLog(t *testing.T) {
	for _, why := range append(vfs.PassingErrors, errDisk) {
		t.Run(fmt.Sprint(why), func(t *testing.T) {
			d, s, _ := deletedInLog(t)
			d = (&crashRun{s: s, d: d}).dies(t)
			o := options()
			o.fs = d
			for _, o.ReadOnly = range []bool{true, false} {
				logFails(d, why)
				_, err := Open(ctx, d.Dir(), o)
				namesLog(t, err, why)
				d.Before(nil)
				s, err := Open(ctx, d.Dir(), o)
				if err != nil {
					t.Fatal(err)
				}
				if doubts := s.eng.doubts; len(doubts) > 0 {
					t.Errorf("the index was rebuilt: %v", doubts)
				}
				if n := s.eng.counts().Blocks; n != 0 {
					t.Errorf("%d deleted blocks are back", n)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// So does rebuilding a damaged index of an open store: it suspends itself, and Resume says why, until the log can be read.
func TestRebuildOnAnUnreadableLog(t *testing.T) {
	for _, why := range append(vfs.PassingErrors, errDisk) {
		t.Run(fmt.Sprint(why), func(t *testing.T) {
			d, s, p := deletedInLog(t)
			defer func() { (&crashRun{s: s, d: d}).kill() }()
			logFails(d, why)
			losesIndex(t, s)
			namesLog(t, s.Resume(ctx), why)
			d.Before(nil)
			if err := s.Resume(ctx); err != nil {
				t.Fatal(err)
			}
			expect(t, model(t, s, plain()), p, 0)
		})
	}
}
