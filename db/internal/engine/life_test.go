package engine_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// A name that is empty, as of a variable that is not set, is not the current directory.
func TestOpenWithoutAName(t *testing.T) {
	t.Chdir(t.TempDir())
	if s, err := db.Open(t.Context(), "", storetest.Options()); err == nil {
		s.Close()
		t.Error("a store was made in the current directory")
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// syncedDirs notes which directories are synced.
func syncedDirs(dirs *[]string) *storetest.Disk {
	return storetest.Failing(func(c storetest.Call) error {
		if c.Kind == "syncdir" {
			*dirs = append(*dirs, c.Name)
		}
		return nil
	})
}

// A power cut does not take a new store's directory with all that was acknowledged in it: its name, and those of the directories
// that were made above it, are synced.
func TestNewDirectoriesAreSynced(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "app", "cache", "kv")
	var synced []string
	storetest.OpenOn(t, syncedDirs(&synced), dir, storetest.Options())
	for _, d := range []string{top, filepath.Join(top, "app"), filepath.Join(top, "app", "cache")} {
		if !slices.Contains(synced, d) {
			t.Errorf("%s was not synced, but %v", d, synced)
		}
	}
}

// A process that was killed while it made a new store's directories may have synced the names of all but the deepest: the next one
// syncs that.
func TestDirectoriesOfKilledProcessAreSynced(t *testing.T) {
	for made := range 3 {
		top := t.TempDir()
		dirs := []string{top, filepath.Join(top, "app"), filepath.Join(top, "app", "kv")}
		storetest.OK(t, os.MkdirAll(dirs[made], 0o700))
		var synced []string
		storetest.OpenOn(t, syncedDirs(&synced), dirs[2], storetest.Options())
		want := []string{filepath.Dir(top), top, dirs[1]}[made:]
		if len(synced) < len(want) || !slices.Equal(synced[:len(want)], want) {
			t.Errorf("%d were made: expected that %v are synced first, found %v", made, want, synced)
		}
	}
}

// A store that has no LOCK, a copy, say, can be opened for reading, suspended and resumed, and gets none by that.
func TestReadOnlyWithoutLock(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	p := kv.Tokens(crashtest.Tokens(1, 48)...)
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
	storetest.OK(t, s.Close())
	lock := filepath.Join(dir, storetest.LockFile)
	storetest.OK(t, os.Remove(lock))
	o := storetest.Options()
	o.ReadOnly = true
	other := storetest.Open(t, dir, o) // several may read it
	s = storetest.Open(t, dir, o)
	storetest.Expect(t, storetest.Model(t, other, crashtest.Plain()), p, 48)
	storetest.OK(t, other.Close())
	m := storetest.Model(t, s, crashtest.Plain())
	for range 2 {
		storetest.OK(t, s.Suspend(t.Context()))
		storetest.OK(t, s.Resume(t.Context()))
		storetest.Expect(t, m, p, 48)
	}
	storetest.OK(t, s.Close())
	if _, err := os.Stat(lock); err == nil {
		t.Error("a store that is only read has got a LOCK")
	}
}

// inChild runs this test binary as another process that does what childStore says.
func inChild(t *testing.T, job, dir string) string {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestChildStore$")
	c.Env = append(os.Environ(), "DORMOUSE_CHILD="+job, "DORMOUSE_CHILD_DIR="+dir)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	return string(out)
}

// TestChildStore is what the other process does.
func TestChildStore(t *testing.T) {
	dir := os.Getenv("DORMOUSE_CHILD_DIR")
	switch os.Getenv("DORMOUSE_CHILD") {
	default:
		t.Skip("SKIPPED: runs in a child process only, which other tests start")
	case "open":
		_, err := db.Open(t.Context(), dir, storetest.Options())
		fmt.Printf("locked %t: %v\n", errors.Is(err, db.ErrLocked), err)
	case "use":
		s := storetest.Open(t, dir, storetest.Options())
		m := storetest.Model(t, s, crashtest.Plain())
		storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 200)}, 200)
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 200)})
		storetest.Must(m.Delete(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(3, 200)[:1]}))(t)
		storetest.OK(t, s.Close())
	}
}

func TestLocked(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	pid := strconv.Itoa(os.Getpid())
	if _, err := db.Open(t.Context(), dir, storetest.Options()); !errors.Is(err, db.ErrLocked) || !strings.Contains(err.Error(), pid) {
		t.Errorf("second open in this process: %v", err)
	}
	if _, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{}); !errors.Is(err, db.ErrLocked) || !strings.Contains(err.Error(), pid) {
		t.Errorf("verify: %v", err)
	}
	if out := inChild(t, "open", dir); !strings.Contains(out, "locked true") || !strings.Contains(out, pid) {
		t.Errorf("open in another process: %s", out)
	}
	storetest.OK(t, s.Close())
	if out := inChild(t, "open", dir); !strings.Contains(out, "locked false: <nil>") {
		t.Errorf("open in another process after Close: %s", out)
	}
}

// Somebody takes LOCK for a leftover and removes it, while the store is in use. It stays one process's.
func TestLockedWithoutLock(t *testing.T) {
	t.Parallel() // it waits for locks
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	for range 2 {
		storetest.OK(t, os.Remove(filepath.Join(dir, storetest.LockFile)))
		if _, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{}); !errors.Is(err, db.ErrLocked) { // it makes no LOCK
			t.Errorf("verify: %v", err)
		}
		if _, err := db.Open(t.Context(), dir, storetest.Options()); !errors.Is(err, db.ErrLocked) {
			t.Errorf("second open in this process: %v", err)
		}
		if out := inChild(t, "open", dir); !strings.Contains(out, "locked true") {
			t.Errorf("open in another process: %s", out)
		}
		storetest.OK(t, errors.Join(s.Suspend(t.Context()), s.Resume(t.Context())))
	}
	storetest.OK(t, s.Close())
	if out := inChild(t, "open", dir); !strings.Contains(out, "locked false: <nil>") {
		t.Errorf("open in another process after Close: %s", out)
	}
}

// Records of a store whose folder is away for a moment, with its medium perhaps, are not damaged: once it is back, all is there.
func TestFolderIsAwayForAMoment(t *testing.T) {
	dir := t.TempDir() + "/store"
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	p, q := kv.Tokens(crashtest.Tokens(1, 64)...), kv.Tokens(crashtest.Tokens(2, 64)...)
	storetest.Put(t, m, p)
	s = storetest.Reopened(t, s, storetest.Options())
	m = storetest.Model(t, s, crashtest.Plain())
	storetest.Put(t, storetest.Model(t, s, crashtest.Windowed(40)), q) // the log is open, and a segment, but not the one of p
	storetest.OK(t, os.Rename(dir, dir+".away"))
	x := storetest.Match(t, m, p)
	if got, err := x.Restore(t.Context(), storetest.Empty(m.Descriptor(), 64)); err != nil || got.Tokens != 0 || got.Reason.Code != db.Damaged {
		t.Errorf("%+v, %v: nothing is tested", got, err)
	}
	storetest.OK(t, x.Close())
	storetest.OK(t, os.Rename(dir+".away", dir))
	storetest.Expect(t, m, p, 64)
	storetest.OK(t, s.Close())
	s = storetest.Open(t, dir, storetest.Options())
	storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 64)
	storetest.Sound(t, s)
}

// openFiles lists what this process has open, or mapped, in dir.
func openFiles(t *testing.T, dir string) (out []string) {
	fds, err := os.ReadDir("/proc/self/fd")
	storetest.OK(t, err)
	for _, fd := range fds {
		if name, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(name, dir) {
			out = append(out, name)
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	storetest.OK(t, err)
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, dir) {
			out = append(out, "map: "+line)
		}
	}
	return out
}

// Between Suspend and Resume the store holds nothing of the system's, another process may use it, and afterwards handles
// and matches go on with what is stored now.
func TestSuspend(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	d := crashtest.Plain()
	m := storetest.Model(t, s, d)
	one, two, three := kv.Prompt{Tokens: crashtest.Tokens(1, 200)}, kv.Prompt{Tokens: crashtest.Tokens(2, 200)}, kv.Prompt{Tokens: crashtest.Tokens(3, 200)}
	storetest.Put(t, m, one)
	storetest.Put(t, m, three)
	storetest.Expect(t, m, one, 200)
	matches := map[string]*db.Match{}
	for name, p := range map[string]kv.Prompt{"kept": one, "deleted": three} {
		x := storetest.Match(t, m, p)
		defer x.Close()
		matches[name] = x
	}
	if runtime.GOOS == "linux" && len(openFiles(t, dir)) == 0 {
		t.Fatal("an open store has no open file: the test looks in the wrong place")
	}
	before := storetest.Stats(t, s)
	pinned, _ := storetest.Engine(s).Pins.Counts()
	storetest.OK(t, s.Suspend(t.Context()))
	if runtime.GOOS == "linux" {
		if left := openFiles(t, dir); len(left) > 0 {
			t.Errorf("suspended, but open: %v", left)
		}
	}
	if _, err := m.Match(t.Context(), one, db.MatchOptions{}); !errors.Is(err, db.ErrSuspended) {
		t.Errorf("match while suspended: %v", err)
	}
	inChild(t, "use", dir)
	storetest.OK(t, s.Resume(t.Context()))
	after := storetest.Stats(t, s)
	if now, _ := storetest.Engine(s).Pins.Counts(); now != pinned || after.Puts != before.Puts || after.Lookup.N != before.Lookup.N || before.Puts == 0 {
		t.Errorf("%d blocks are pinned, before %d; %d puts are counted, before %d", now, pinned, after.Puts, before.Puts)
	}
	for name, want := range map[string]int{"kept": 200, "deleted": 0} {
		x := matches[name]
		rows := storetest.Empty(d, 200)
		got, err := x.Restore(t.Context(), rows)
		if err != nil || got.Tokens != want {
			t.Errorf("match of what was %s: %d tokens (%v), %v", name, got.Tokens, got.Reason, err)
		}
		p := x.Prompt()
		storetest.CheckRows(t, d, &p, rows, got.Tokens)
	}
	storetest.Expect(t, m, one, 200)
	storetest.Expect(t, m, two, 200) // the other process stored it
	storetest.Expect(t, m, three, 0) // and deleted this
	if _, err := matches["kept"].Extend(t.Context(), kv.Prompt{Tokens: crashtest.Concat(one.Tokens, crashtest.Tokens(9, 50))},
		storetest.Filled(d, &kv.Prompt{Tokens: crashtest.Concat(one.Tokens, crashtest.Tokens(9, 50))}, 200, 250), db.PutOptions{}); err != nil {
		t.Error(err)
	}
	storetest.Expect(t, m, kv.Prompt{Tokens: crashtest.Concat(one.Tokens, crashtest.Tokens(9, 50))}, 250)
}

// Methods of a match, and a writer that waits for all of them to end, do not wait for one another in a circle.
func TestMatchMethodsAndSuspend(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	storetest.Put(t, m, p)
	x := storetest.Match(t, m, p)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	again := func(f func()) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	again(func() { x.Extend(t.Context(), p, storetest.Filled(crashtest.Plain(), &p, 0, 64), db.PutOptions{}) })
	for range 2 {
		again(func() { x.Restore(t.Context(), storetest.Empty(crashtest.Plain(), 64)) })
	}
	again(func() {
		s.Suspend(t.Context())
		if err := s.Resume(t.Context()); err != nil {
			t.Error(err)
		}
	})
	finished := make(chan struct{})
	go func() {
		time.Sleep(300 * time.Millisecond)
		close(stop)
		wg.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(20 * time.Second):
		t.Fatal("deadlock")
	}
	x.Close()
}
