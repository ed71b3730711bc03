package db

import (
	"path/filepath"
	"testing"
)

// A power cut may take or tear the header of a segment that was never synced, and leave records in it; the last one of a put that
// was not acknowledged is torn. All that is whole is kept, and nothing of what is left looks like damage, then or later.
func TestPowerCutTakesHeaderOfSegment(t *testing.T) {
	for _, without := range []string{"", indexName} {
		headerCut(t, 0, without)
		headerCut(t, 100, without)
	}
}

// headerCut is the test of a header of which nothing is left from there on.
func headerCut(t *testing.T, from int64, without string) {
	w := crashCase(t, crashMode{})
	n := len(crashChats()[0].p.Tokens)
	w.steps(t, crashOp{kind: "put", chat: 0, n: n - 20})
	image := w.diesBeforeFrame(t, n)
	err := tear(image, from)
	if err == nil {
		err = rebooted(image)
	}
	if err == nil && without != "" {
		err = image.Remove(filepath.Join(image.Dir(), without))
	}
	if err != nil {
		t.Fatal(err)
	}

	x := nextRun(t, image, w.k, newCrashJournal(w.k))
	for i, kind := range []string{"open", "sync", "checkpoint", "checkpoint", "reopen", "put", "reopen"} {
		if err := x.do(crashOp{kind: kind, chat: 0, n: n}); err != nil {
			t.Fatal(err)
		}
		rep, err := x.s.Verify(ctx, VerifyOptions{})
		if err != nil || len(rep.Damage) > 0 {
			t.Errorf("header cut at %d, step %d, %s: %v, %v", from, i, kind, err, rep.Damage)
		}
		least := n - 20
		if i > 4 {
			least = n
		}
		if got, err := crashChats()[0].restore(x.model(0)); err != nil || got < least {
			t.Errorf("header cut at %d, step %d, %s: %d of %d tokens, %v", from, i, kind, got, least, err)
		}
	}
	for _, s := range x.s.eng.set.Segments() {
		if s.Err != nil || !s.Sealed && !s.Active {
			t.Errorf("header cut at %d: %+v", from, s)
		}
	}
}
