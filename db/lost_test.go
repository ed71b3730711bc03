package db

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A power cut comes in the middle of what a deletion destroys, and leaves the tail that a longer block took the place of: it is
// deleted like that.
func TestSupersededTailGoesWithItsPrompt(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for _, d := range []kv.Descriptor{plain(), windowed(40)} {
			dir := t.TempDir()
			s := open(t, dir, options())
			m := model(t, s, d)
			other, p := kv.Tokens(tokens(7, 32)...), kv.Tokens(tokens(1, 64)...)
			put(t, m, other)
			put(t, m, p.Prefix(40))
			if err := s.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
			reader, err := m.Match(ctx, other, MatchOptions{}) // keeps what is deleted
			if err != nil {
				t.Fatal(err)
			}
			put(t, m, p)
			leaf := placeOf(t, m, p, 3, 0)
			if _, err := m.Delete(ctx, p.Prefix(33)); err != nil {
				t.Fatal(err)
			}
			image := copyStore(t, dir)
			reader.Close()
			zeroRecord(t, image, leaf, 4096)
			cutPower(t, image, lost)
			s = open(t, image, options())
			expect(t, model(t, s, d), p, 32)
			soundly(t, s)
		}
	}
}

// A block that was found damaged and put again, between two checkpoints, leaves what hangs below it where it is after a power cut; if
// that took what was put, all goes that cannot be reached: whether the first one was damaged, or is lost like the second, nobody knows. But
// what was synced no power cut takes: it is damaged, and what hangs below it stays.
func TestReplacedBetweenCheckpoints(t *testing.T) {
	for i := range 4 {
		torn, sync := i&1 > 0, i&2 > 0
		dir := t.TempDir()
		s := open(t, dir, options())
		m := model(t, s, plain())
		p := kv.Tokens(tokens(1, 64)...)
		put(t, m, p)
		zeroRecord(t, dir, placeOf(t, m, p, 1, 0), 4096)
		expect(t, m, p, 16)
		put(t, m, p)
		expect(t, m, p, 64)
		if sync {
			if err := s.Sync(ctx); err != nil {
				t.Fatal(err)
			}
		}
		again := placeOf(t, m, p, 1, 0)
		image := copyStore(t, dir)
		want := 64
		if torn {
			zeroRecord(t, image, again, 4096)
			want = 16
		}
		cutPower(t, image, false)
		s = open(t, image, options())
		m = model(t, s, plain())
		expect(t, m, p, want)
		if rep, err := s.Verify(ctx, VerifyOptions{}); err != nil || len(rep.Damage) > 0 != (torn && sync) {
			t.Errorf("torn %t, synced %t: %v, %v", torn, sync, rep.Damage, err)
		}
		put(t, m, p.Prefix(32))
		if want = 64; torn && !sync {
			want = 32
		}
		expect(t, m, p, want)
		soundly(t, s)
	}
}

// A power cut takes a copy, and the original stands in; it is moved again and destroyed, and the process ends before a checkpoint.
func TestMovedOnAfterStandingIn(t *testing.T) {
	for _, block := range []int{1, 4} { // one with children, and a leaf
		w := crashCase(t, crashMode{power: true})
		x := crashChats()[0]
		n := len(x.p.Tokens)
		w.steps(t, crashOp{kind: "put", chat: 0, n: n}, crashOp{kind: "checkpoint"}, crashOp{kind: "move"}, crashOp{kind: "log sync"})
		lost := placeOf(t, w.model(0), x.p, block, 0)
		image := w.dies(t)
		f, err := image.Open((&engine{dir: image.Dir()}).segmentPath(lost.Segment), false)
		if err == nil {
			_, err = f.WriteAt(make([]byte, 4096), lost.Offset)
		}
		if err == nil {
			err = errors.Join(f.Sync(), f.Close(), rebooted(image))
		}
		if err != nil {
			t.Fatal(err)
		}
		run := nextRun(t, image, w.k, newCrashJournal(w.k))
		check := func(when string) {
			t.Helper()
			if got, err := x.restore(run.model(0)); err != nil || got != n {
				t.Errorf("block %d, %s: %d of %d tokens, %v", block, when, got, n, err)
			}
			if rep, err := run.s.Verify(ctx, VerifyOptions{}); err != nil || len(rep.Damage) > 0 {
				t.Errorf("block %d, %s: %v, %v", block, when, err, rep.Damage)
			}
		}
		run.steps(t, crashOp{kind: "open"})
		check("after the cut")
		run.steps(t, crashOp{kind: "move"}, crashOp{kind: "sync"}) // destroys the original
		check("moved again")
		run = nextRun(t, run.dies(t), w.k, newCrashJournal(w.k))
		run.steps(t, crashOp{kind: "open"})
		check("killed")
	}
}
