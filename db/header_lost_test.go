package db

import (
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

// Where records lie on multiples of more than 4 KiB, those of a segment whose header is lost live on after a kill.
func TestHeaderLostOnCoarseDisk(t *testing.T) {
	d := newCrashDisk(newCrashDirs(t).next())
	o := crashMode{}.options(d)
	o.fs = coarse{d}
	x := crashChats()[0]
	n := len(x.p.Tokens)
	w := &crashRun{d: d, j: newCrashJournal(crashMode{})}
	t.Cleanup(func() { w.kill() })
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
	d.Crash()
	w.kill()
	image, err := d.Kill(newCrashDirs(t).next())
	if err != nil {
		t.Fatal(err)
	}
	f, err := image.Open(filepath.Join(image.Dir(), segmentsDir, "0000000000000001.seg"), false)
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
