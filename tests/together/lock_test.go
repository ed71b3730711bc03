package together

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/tests/together/truth"
)

// holderEnv has this binary open the store that it names, put one prompt into it, say so and wait to be killed.
const holderEnv = "DORMOUSE_TOGETHER_HOLDER"

func TestHolder(t *testing.T) {
	dir := os.Getenv(holderEnv)
	if dir == "" {
		t.Skip("runs in another process only")
	}
	s, err := db.Open(ctx, dir, options())
	if err != nil {
		fmt.Println("refused:", err)
		return
	}
	put(t, model(t, s, truth.Plain("lock", 32)), truth.Prompt(truth.Tokens(uint64(os.Getpid()), 64)))
	fmt.Println("holds")
	time.Sleep(time.Hour)
}

// holder starts a process that opens dir and returns what it says.
func holder(t *testing.T, dir string) (cmd *exec.Cmd, says string) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-test.run=^TestHolder$")
	cmd.Env = append(os.Environ(), holderEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	says, err = bufio.NewReader(out).ReadString('\n')
	must(t, err)
	return cmd, says
}

// While a process holds a store, every other open for writing is refused and names it; a reader beside it keeps nobody out. When it is
// killed the lock is free at once, and what it acknowledged is there.
func TestLockOfAKilledProcess(t *testing.T) {
	dir := t.TempDir()
	var pids []int
	for range 3 {
		cmd, says := holder(t, dir)
		pid := cmd.Process.Pid
		if pids = append(pids, pid); says != "holds\n" {
			t.Fatalf("process %d: %s", pid, says)
		}
		o := options()
		if _, err := db.Open(ctx, dir, o); !errors.Is(err, db.ErrLocked) || !strings.Contains(err.Error(), strconv.Itoa(pid)) {
			t.Errorf("open while process %d has it: %v", pid, err)
		}
		o.ReadOnly = true
		if reader, err := db.Open(ctx, dir, o); err != nil {
			t.Errorf("open, read-only, while process %d has it: %v", pid, err)
		} else {
			must(t, reader.Close())
		}
		if _, err := admin.Verify(ctx, dir, admin.VerifyOptions{}); !errors.Is(err, db.ErrLocked) {
			t.Errorf("verify while process %d has it: %v", pid, err)
		}
		if _, says := holder(t, dir); !strings.HasPrefix(says, "refused") || !strings.Contains(says, strconv.Itoa(pid)) {
			t.Errorf("a second process says %q", says)
		}
		must(t, cmd.Process.Kill())
		cmd.Wait()
	}
	s := open(t, dir, options())
	m := model(t, s, truth.Plain("lock", 32))
	for _, pid := range pids {
		x := match(t, m, truth.Prompt(truth.Tokens(uint64(pid), 64)))
		if n, why := restored(t, m, x); n != 64 {
			t.Errorf("%d tokens of what process %d stored: %v", n, pid, why)
		}
		must(t, x.Close())
	}
	verified(t, s)
}

// A suspended store is another process's to take; then Resume is refused, names it, and works when that process is gone.
func TestResumeWhileAnotherHoldsTheLock(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, truth.Plain("lock", 32))
	p := truth.Prompt(truth.Tokens(1, 64))
	put(t, m, p)
	must(t, s.Suspend(ctx))
	cmd, says := holder(t, dir)
	if says != "holds\n" {
		t.Fatal(says)
	}
	for range 2 {
		if err := s.Resume(ctx); !errors.Is(err, db.ErrLocked) || !strings.Contains(err.Error(), strconv.Itoa(cmd.Process.Pid)) {
			t.Errorf("resume while process %d has it: %v", cmd.Process.Pid, err)
		}
		if _, _, err := m.Probe(ctx, p, db.MatchOptions{}); !errors.Is(err, db.ErrSuspended) {
			t.Errorf("probe: %v", err)
		}
	}
	must(t, cmd.Process.Kill())
	cmd.Wait()
	must(t, s.Resume(ctx))
	for _, seed := range []uint64{1, uint64(cmd.Process.Pid)} {
		if n, why, err := m.Probe(ctx, truth.Prompt(truth.Tokens(seed, 64)), db.MatchOptions{}); n != 64 || err != nil {
			t.Errorf("%d tokens: %v, %v", n, why, err)
		}
	}
	verified(t, s)
}

// Of many opens at the same moment one gets the store, and the others are told who.
func TestOneOfManyOpens(t *testing.T) {
	dir := t.TempDir()
	for range 20 {
		var got atomic.Pointer[db.Store]
		var wait sync.WaitGroup
		begin := make(chan struct{})
		for range 8 {
			wait.Go(func() {
				<-begin
				s, err := db.Open(ctx, dir, options())
				if err == nil && !got.CompareAndSwap(nil, s) {
					t.Error("two opens got one store")
				}
				if err != nil && (!errors.Is(err, db.ErrLocked) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid()))) {
					t.Error(err)
				}
			})
		}
		close(begin)
		wait.Wait()
		if got.Load() == nil {
			t.Fatal("no open got the store")
		}
		must(t, got.Load().Close())
	}
	noneLeft(t)
}
