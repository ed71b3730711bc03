package index

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// TestFullDisk: a checkpoint that meets a full disk (here a limit on the size of files) changes nothing, is tried again
// when there is room, and then writes everything.
func TestFullDisk(t *testing.T) {
	const child = "DORMOUSE_TEST_FULLDISK"
	if os.Getenv(child) == "" { // the limit holds for a whole process
		cmd := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		if t.Logf("%s", out); err != nil {
			t.Fatal(err)
		}
		return
	}
	o := testOptions(t.TempDir())
	m := build(t, o, 50)
	ix := must(Open(o))(t)

	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Skipf("SKIPPED: no limit on the size of files here: %v", err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	put := func(from, to int) {
		var entries []Entry
		for n := from; n < to; n++ {
			entries = append(entries, Entry{Key: key(n), Parent: key(n / 2), Hashes: make([]byte, 60), Loc: Loc{Length: 9}})
		}
		enter(t, ix, m, entries)
	}
	put(1000, 1400)
	limit := old
	limit.Cur = uint64(ix.rows.base.meta.pages+3) * pageBytes
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Skipf("SKIPPED: no limit on the size of files here: %v", err)
	}
	restore := func() { syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old) }
	defer restore()
	for n := range 2 {
		if err := ix.Checkpoint(context.Background(), Applied{LSN: 7}); err == nil {
			t.Skip("SKIPPED: the limit on the size of files has no effect here")
		} else {
			t.Log(err)
			if !errors.Is(err, vfs.ErrNoSpace) {
				t.Fatal(err)
			}
		}
		put(2000+n, 2001+n)
		m.check(t, ix)
	}
	restore()
	save(t, ix, 8)
	ix.Freeze()
	save(t, ix, 9)
	verifyClean(t, ix)
	boltCheck(t, ix)
	ok(t, ix.Close())
	ix = must(Open(o))(t)
	m.check(t, ix)
	ix.Close()
}
