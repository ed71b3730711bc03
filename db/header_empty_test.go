package db

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// A segment of which a power cut took the header, and in which nothing lives, goes with all that was torn in it.
func TestPowerCutTakesHeaderWhereNothingLives(t *testing.T) {
	for _, without := range []string{"", indexName} {
		x := crashChats()[0]
		n := len(x.p.Tokens)
		w, image := headerless(t, n)
		if without != "" {
			if err := image.Remove(filepath.Join(image.Dir(), without)); err != nil {
				t.Fatal(err)
			}
		}
		run := nextRun(t, image, w.k, newCrashJournal(w.k))
		for _, kind := range []string{"open", "sync", "checkpoint", "reopen", "put", "reopen"} {
			if err := run.do(crashOp{kind: kind, chat: 0, n: n}); err != nil {
				t.Fatal(err)
			}
			if rep, err := run.s.Verify(ctx, VerifyOptions{}); err != nil || len(rep.Damage) > 0 {
				t.Errorf("without %q, %s: %v, %v", without, kind, err, rep.Damage)
			}
		}
		if got, err := x.restore(run.model(0)); err != nil || got != n {
			t.Errorf("without %q: %d of %d tokens, %v", without, got, n, err)
		}
		for _, s := range run.s.eng.set.Segments() {
			if s.Err != nil {
				t.Errorf("without %q: %+v", without, s)
			}
		}
	}
}

// Also where a power cut takes back that it went, after a checkpoint that left the log which knew of it: it goes once more, and what
// is torn in it is no damage meanwhile.
func TestHeaderlessSegmentComesBack(t *testing.T) {
	for _, without := range []string{"", indexName} {
		x := crashChats()[0]
		n := len(x.p.Tokens)
		w, image := headerless(t, n)
		torn := crashFiles(image)[firstSegment]
		run := nextRun(t, image, w.k, newCrashJournal(w.k))
		run.steps(t, crashOp{kind: "open"}, crashOp{kind: "checkpoint"})
		back := run.dies(t)
		f, err := back.Create(filepath.Join(back.Dir(), firstSegment))
		if err == nil {
			_, err = f.WriteAt(torn, 0)
		}
		if err == nil {
			err = errors.Join(f.Sync(), f.Close(), back.SyncDir(filepath.Join(back.Dir(), segmentsDir)), rebooted(back))
		}
		if err == nil && without != "" {
			err = back.Remove(filepath.Join(back.Dir(), without))
		}
		if err != nil {
			t.Fatal(err)
		}
		last := nextRun(t, back, w.k, newCrashJournal(w.k))
		for _, kind := range []string{"open", "put", "checkpoint", "reopen"} {
			if err := last.do(crashOp{kind: kind, chat: 0, n: n}); err != nil {
				t.Fatal(err)
			}
			if rep, err := last.s.Verify(ctx, VerifyOptions{}); err != nil || len(rep.Damage) > 0 {
				t.Errorf("without %q, %s: %v, %v", without, kind, err, rep.Damage)
			}
		}
		if got, err := x.restore(last.model(0)); err != nil || got != n {
			t.Errorf("without %q: %d of %d tokens, %v", without, got, n, err)
		}
		if last.s.eng.set.Has(1) {
			t.Errorf("without %q: it is still there", without)
		}
	}
}

// headerless is a disk after a power cut that took the header of a segment in which nothing lives, and tore what was being put there.
func headerless(t *testing.T, n int) (w *crashRun, image *crashfs.Disk) {
	t.Helper()
	w = crashCase(t, crashMode{})
	w.steps(t, crashOp{kind: "put", chat: 0, n: n - 20})
	if _, err := w.model(0).Delete(ctx, crashChats()[0].p.Prefix(1)); err != nil {
		t.Fatal(err)
	}
	image = w.diesBeforeFrame(t, n)
	err := tear(image, 0)
	if err == nil {
		err = rebooted(image)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w, image
}
