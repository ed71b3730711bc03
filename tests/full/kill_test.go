//go:build linux

package full

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
)

// childEnv has this binary work a store in the directory that it names, until it is killed; its prompts begin at firstEnv.
const (
	childEnv = "DORMOUSE_FULL_TEST_CHILD"
	firstEnv = "DORMOUSE_FULL_TEST_FIRST"
)

// A process is killed while the disk is full. The store opens on the full disk, read-only and to be written, with everything
// that was acknowledged and pinned and nothing that was deleted; deleting makes room there, and puts go on.
func TestKilledWhileFull(t *testing.T) {
	if dir := os.Getenv(childEnv); dir != "" {
		work(t, dir)
		return
	}
	inSmallFS(t, func(t *testing.T, dir string) {
		d, first := lasts(t, 4*time.Second), seed(t)
		r := rand.New(rand.NewPCG(first, 7))
		s, _ := open(t, dir, options()) // a new store needs room for its files
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		b := newBalloon(t, dir)
		has := map[uint64]*chat{}
		loops, acks := 0, 0
		for end := time.Now().Add(d); time.Now().Before(end) && !t.Failed(); loops++ {
			acks += killed(t, r, b, dir, uint64(loops+1)<<40, has)
			b.fill()
			o := options()
			o.ReadOnly = true
			s, m := open(t, dir, o)
			compare(t, m, has, "read-only on a full disk")
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			s, m = open(t, dir, options())
			compare(t, m, has, "opened on a full disk")
			for id, c := range has { // deleting makes room
				if c.deleted {
					delete(has, id)
				} else if r.IntN(3) > 0 {
					if _, err := m.Delete(ctx, prompt(id, 1)); err != nil {
						t.Errorf("kill %d: delete on a full disk: %v", loops, err)
					}
					b.fill() // whoever fills the disk takes what comes free
					*c = chat{blocks: c.blocks, deleted: true}
				}
			}
			compare(t, m, has, "after deletions on a full disk")
			if err := s.Checkpoint(ctx); err != nil && !full(err) {
				t.Errorf("checkpoint on a full disk: %v", err)
			}
			b.shrink(1 << 40)
			if err := errors.Join(put(m, uint64(loops+1)<<32, 0, 3), s.Checkpoint(ctx)); err != nil {
				t.Errorf("put when there is room again: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			verify(t, dir, false)
		}
		verify(t, dir, true)
		t.Logf("%d kills, %d acknowledgements", loops, acks)
		if acks == 0 {
			t.Error("nothing was ever acknowledged: this test shows nothing")
		}
	})
}

func compare(t *testing.T, m *db.Model, has map[uint64]*chat, when string) {
	t.Helper()
	for id, c := range has {
		n, err := found(m, id, max(1, c.blocks))
		switch {
		case err != nil:
			t.Errorf("%s: prompt %d: %v", when, id, err)
		case c.deleted && n > 0:
			t.Errorf("%s: prompt %d was deleted, %d blocks are back", when, id, n)
		case n < c.pinned:
			t.Errorf("%s: prompt %d was acknowledged and pinned, %d of %d blocks are left", when, id, n, c.pinned)
		}
	}
}

// killed lets a process work the store while the balloon breathes, fills the disk, and kills it. It enters what that process
// acknowledged.
func killed(t *testing.T, r *rand.Rand, b *balloon, dir string, first uint64, has map[uint64]*chat) (acks int) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWhileFull$")
	cmd.Env = append(os.Environ(), childEnv+"="+dir, firstEnv+"="+strconv.FormatUint(first, 10))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var beside sync.WaitGroup
	enough := 20 + r.IntN(200)
	seed := r.Uint64()
	beside.Go(func() { b.breathe(rand.New(rand.NewPCG(seed, 1)), stop) })
	asked := map[uint64]bool{} // deletions that may be done
	full := sync.OnceFunc(func() {
		close(stop)
		beside.Wait()
		b.fill()
		if r.IntN(2) == 0 { // it works on the full disk for a while
			time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
		}
		cmd.Process.Kill()
	})
	timer := time.AfterFunc(3*time.Second, full) // where the disk is so full that nothing more is acknowledged
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var what string
		var id uint64
		var n int
		if _, err := fmt.Sscan(lines.Text(), &what, &id, &n); err != nil {
			t.Errorf("the other process says %q", lines.Text())
			continue
		}
		switch what {
		case "put":
			has[id] = &chat{blocks: n}
		case "pin":
			has[id].pinned = n
		case "delete":
			asked[id] = true
		case "deleted":
			*has[id] = chat{blocks: has[id].blocks, deleted: true}
		}
		if acks++; acks == enough {
			full()
		}
	}
	timer.Stop()
	full()
	cmd.Wait()
	for id := range asked {
		if !has[id].deleted {
			has[id].pinned = 0
		}
	}
	return acks
}

// work is the process that is killed: it says what was acknowledged.
func work(t *testing.T, dir string) {
	s, m := open(t, dir, options())
	first, err := strconv.ParseUint(os.Getenv(firstEnv), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	say := func(what string, id uint64, n int) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(what, id, n)
	}
	var wait sync.WaitGroup
	for g := range uint64(3) {
		wait.Go(func() {
			var pins []uint64
			for id := first + g<<32; ; id++ {
				n := 1 + int(id*7%5)
				if err := put(m, id, 0, n); err != nil {
					if !full(err) {
						panic(err)
					}
					continue
				}
				say("put", id, n)
				if id%3 > 0 {
					continue
				}
				if err := m.SetRef(ctx, fmt.Sprint(id), prompt(id, n), db.RefOptions{Pinned: true}); err != nil {
					if !full(err) {
						panic(err)
					}
					continue
				}
				say("pin", id, n)
				if pins = append(pins, id); len(pins) > 5 {
					say("delete", pins[0], 0)
					if _, err := m.Delete(ctx, prompt(pins[0], 1)); err == nil {
						say("deleted", pins[0], 0)
					} else if !full(err) {
						panic(err)
					}
					pins = pins[1:]
				}
				if id%16 == 0 {
					if err := s.Checkpoint(ctx); err != nil && !full(err) {
						panic(err)
					}
				}
			}
		})
	}
	wait.Wait()
}
