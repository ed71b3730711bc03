package vfs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// holdLock takes the lock, says so, and holds it until its input ends.
func holdLock(name string) int {
	name, readOnly := strings.CutPrefix(name, "read-only:")
	name, shared := strings.CutPrefix(name, "shared:")
	l, err := take(name, readOnly || shared, shared)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("held")
	io.Copy(io.Discard, os.Stdin)
	if err := l.Release(); err != nil {
		return 2
	}
	return 0
}

// holder starts a process that holds the lock; stop ends it in good order.
func holder(t *testing.T, arg string) (cmd *exec.Cmd, stop func()) {
	t.Helper()
	cmd = another(t, "hold lock", arg)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("SKIPPED: no second process: %v", err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	return cmd, func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the other process: %v", err)
		}
	}
}

// refused checks that the lock is held by pid, and that the error says so.
func refused(t *testing.T, name string, pid int, says string) {
	t.Helper()
	for _, readOnly := range []bool{false, true} {
		l, err := AcquireLock(name, readOnly)
		if err == nil {
			l.Release()
			t.Fatalf("a lock that process %d holds was given again, read-only = %v", pid, readOnly)
		}
		var locked *LockedError
		if !errors.Is(err, ErrLocked) || !errors.As(err, &locked) || locked.PID != pid || locked.Name != name {
			t.Errorf("read-only = %v: %v, want it to be held by %d", readOnly, err, pid)
		}
		if !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not say %q", err, says)
		}
	}
}

func acquire(t *testing.T, name string, readOnly bool) *Lock {
	t.Helper()
	l, err := AcquireLock(name, readOnly)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Within a process a lock is given once, by whatever name its file is called, and again after its release.
func TestLockInOneProcess(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "LOCK")
	for range 2 {
		l := acquire(t, name, false)
		if got := string(content(t, name)); got != fmt.Sprintln(os.Getpid()) {
			t.Errorf("the file says %q", got)
		}
		pid := fmt.Sprint(os.Getpid())
		refused(t, name, os.Getpid(), "already open in this process (pid "+pid)
		refused(t, dir+"/../"+filepath.Base(dir)+"/LOCK", os.Getpid(), pid)
		if link := filepath.Join(t.TempDir(), "hard link"); os.Link(name, link) == nil {
			refused(t, link, os.Getpid(), pid)
		}
		refused(t, name, os.Getpid(), pid) // being refused gave nothing up
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(name); err != nil {
			t.Errorf("the file is gone: %v", err)
		}
	}
	// Of two locks, giving up one frees that one.
	other := acquire(t, filepath.Join(dir, "OTHER"), false)
	if err := acquire(t, name, false).Release(); err != nil {
		t.Error(err)
	}
	l := acquire(t, name, false)
	refused(t, filepath.Join(dir, "OTHER"), os.Getpid(), "already open")
	if err := errors.Join(other.Release(), l.Release()); err != nil {
		t.Error(err)
	}
}

// A second release is an error, and takes the lock from nobody.
func TestLockReleasedTwice(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	l := acquire(t, name, false)
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	next := acquire(t, name, false)
	defer next.Release()
	if err := l.Release(); err == nil {
		t.Error("releasing twice is fine")
	}
	refused(t, name, os.Getpid(), "already open")
}

// A second process is refused and told who the first one is; when that ends, it is let in.
func TestLockOfAnotherProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	cmd, stop := holder(t, name)
	refused(t, name, cmd.Process.Pid, fmt.Sprintf("in use by process %d", cmd.Process.Pid))
	stop()
	l := acquire(t, name, false)
	out, err := another(t, "hold lock", name).Output()
	if want := fmt.Sprintf("in use by process %d", os.Getpid()); err == nil || !strings.Contains(string(out), want) {
		t.Errorf("the other process says %q, %v, want %q", out, err, want)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	_, stop = holder(t, name)
	stop()
}

// The lock of a process that was killed is free, whatever pid the file still names.
func TestLockOfAKilledProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	cmd, _ := holder(t, name)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if got := string(content(t, name)); got != fmt.Sprintln(cmd.Process.Pid) {
		t.Errorf("the file says %q", got)
	}
	l := acquire(t, name, false)
	refused(t, name, os.Getpid(), "already open")
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

// A read-only lock excludes as any other, and changes nothing: no file is made, no byte is written.
func TestReadOnlyLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	if _, err := AcquireLock(name, true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a read-only lock made its file")
	}
	if err := os.WriteFile(name, []byte("as it was"), 0o400); err != nil {
		t.Fatal(err)
	}
	l := acquire(t, name, true)
	if l2, err := AcquireLock(name, true); !errors.Is(err, ErrLocked) {
		l2.Release()
		t.Errorf("a second one: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if got := string(content(t, name)); got != "as it was" {
		t.Errorf("the file says %q", got)
	}
}

// Who is refused because of a read-only holder, which writes no pid, is not told of an earlier holder instead.
func TestReadOnlyHolderHasNoName(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	if err := acquire(t, name, false).Release(); err != nil {
		t.Fatal(err)
	}
	_, stop := holder(t, "read-only:"+name)
	refused(t, name, 0, "in use by another process")
	stop()
}

// A directory is not a lock.
func TestLockOfDirectory(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		if l, err := AcquireLock(t.TempDir(), readOnly); err == nil {
			l.Release()
			t.Errorf("read-only = %v: a directory was locked", readOnly)
		}
	}
}

// A lock file that says nonsense is no obstacle, and nonsense is no pid. It is somebody's: locked it stays, and released.
func TestReadPID(t *testing.T) {
	for says, want := range map[string]int{
		"": 0, "12\n": 12, " 34 ": 34, "nonsense that is longer than a pid": 0, "-5\n": 0, "1 2": 0, "99999999999999999999999999999": 0,
		"\x00\x00\x00": 0, "77": 77, "007\n": 7, "12\n\n": 12, "12\nsomething": 0, "+12\n": 12,
	} {
		foreign := says != "" && says != "12\n" && says != "77" && says[0] != 0
		name := filepath.Join(t.TempDir(), "LOCK")
		if err := os.WriteFile(name, []byte(says), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := readPID(f); got != want {
			t.Errorf("%q is read as pid %d", says, got)
		}
		f.Close()
		l := acquire(t, name, false)
		if got := string(content(t, name)); !foreign && got != fmt.Sprintln(os.Getpid()) || foreign && got != says {
			t.Errorf("after %q the file says %q", says, got)
		}
		refused(t, name, os.Getpid(), "already open")
		if err := l.Release(); err != nil {
			t.Error(err)
		}
		if got := string(content(t, name)); foreign && got != says || !foreign && got != "" {
			t.Errorf("after %q, and the release, the file says %q", says, got)
		}
	}
}

// Of many goroutines that want it, one at a time has it.
func TestLockIsExclusive(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	var inside, got atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				l, err := AcquireLock(name, false)
				if err != nil {
					if !errors.Is(err, ErrLocked) {
						t.Error(err)
					}
					continue
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				got.Add(1)
				runtime.Gosched()
				inside.Add(-1)
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got.Load() == 0 {
		t.Error("nobody ever got it")
	}
	t.Logf("had %d times", got.Load())
}

// Readers share a lock, in one process and in several; nobody has it alone meanwhile, and the other way round.
func TestSharedLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	if _, err := ShareLock(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a file that is not there: %v", err)
	}
	share := func() *Lock {
		t.Helper()
		l, err := ShareLock(name)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	alone := acquire(t, name, false)
	if _, err := ShareLock(name); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("beside one who has it alone: %v", err)
	}
	if err := alone.Release(); err != nil {
		t.Fatal(err)
	}
	a, b := share(), share()
	for range 2 {
		refused(t, name, 0, "in use by another process")
		if b != nil {
			if err := b.Release(); err != nil {
				t.Fatal(err)
			}
			b = nil
		}
	}
	if _, stop := holder(t, "shared:"+name); true { // in another process, beside this one's
		if err := a.Release(); err != nil {
			t.Fatal(err)
		}
		refused(t, name, 0, "in use by another process")
		stop()
	}
	if err := acquire(t, name, false).Release(); err != nil {
		t.Error(err)
	}
}
