package db

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// coarse is a disk that is given out in larger blocks than most.
type coarse struct{ *crashfs.Disk }

func (c coarse) Space(dir string) (free uint64, blockBytes int, err error) {
	free, _, err = c.Disk.Space(dir)
	return free, 16 << 10, err
}

// Where records lie on multiples of more than 4 KiB, those of a segment whose header is lost live on after a kill, also without
// the index, and what was deleted stays so.
func TestHeaderLostOnCoarseDisk(t *testing.T) {
	for _, without := range []string{"", indexName} {
		for _, deleted := range []bool{false, true} {
			t.Run(fmt.Sprintf("without %q, deleted %v", without, deleted), func(t *testing.T) { headerLost(t, without, deleted) })
		}
	}
}

func headerLost(t *testing.T, without string, deleted bool) {
	d := newCrashDisk(newCrashDirs(t).Next())
	o := crashMode{}.options(d)
	o.fs = coarse{d}
	o.SegmentBytes = 1 << 20 // a deletion syncs, which seals what is full
	x := crashChats()[0]
	n := len(x.p.Tokens)
	w := nextRun(t, d, crashMode{}, newCrashJournal(crashMode{}))
	openIt := func() {
		t.Helper()
		var err error
		if w.s, err = Open(ctx, w.d.Dir(), o); err == nil {
			err = w.registered()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	openIt()
	w.steps(t, crashOp{kind: "put", chat: 0, n: n})
	if deleted {
		w.steps(t, crashOp{kind: "put", chat: 2, n: len(crashChats()[2].p.Tokens)})
		if _, err := w.model(0).Delete(ctx, x.p.Prefix(crashSystem+1)); err != nil {
			t.Fatal(err)
		}
		n = crashSystem // both begin with that
	}
	image := w.dies(t)
	f, err := image.Open(filepath.Join(image.Dir(), firstSegment), false)
	if err == nil {
		_, err = f.WriteAt(make([]byte, 4096), 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if without != "" {
		if err := image.Remove(filepath.Join(image.Dir(), without)); err != nil {
			t.Fatal(err)
		}
	}
	w.d, o.fs = image, coarse{image}
	openIt()
	for _, kind := range []string{"sync", "checkpoint", "checkpoint"} {
		if err := w.do(crashOp{kind: kind}); err != nil {
			t.Fatal(err)
		}
		if got, err := x.restore(w.model(0)); err != nil || got != n {
			t.Fatalf("after a %s: %d of %d tokens, %v", kind, got, n, err)
		}
	}
	if rep, err := w.s.Verify(ctx, VerifyOptions{}); err != nil || len(rep.Damage) > 0 {
		t.Errorf("verify: %v, %v", err, rep.Damage)
	}
}
