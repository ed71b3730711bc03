package db

import (
	"path/filepath"
	"testing"
)

// A segment of which a power cut took the header, and in which nothing lives, goes with all that was torn in it.
func TestPowerCutTakesHeaderWhereNothingLives(t *testing.T) {
	for _, without := range []string{"", indexName} {
		w := crashCase(t, crashMode{})
		x := crashChats()[0]
		n := len(x.p.Tokens)
		w.steps(t, crashOp{kind: "put", chat: 0, n: n - 20})
		if _, err := w.model(0).Delete(ctx, x.p.Prefix(1)); err != nil {
			t.Fatal(err)
		}
		image := w.diesBeforeFrame(t, n)
		err := tear(image, 0)
		if err == nil {
			err = rebooted(image)
		}
		if err == nil && without != "" {
			err = image.Remove(filepath.Join(image.Dir(), without))
		}
		if err != nil {
			t.Fatal(err)
		}
		run := &crashRun{d: image, k: w.k, j: newCrashJournal(w.k)}
		t.Cleanup(run.kill)
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
