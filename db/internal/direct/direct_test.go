package direct

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever the sizes of the reads, how many are done at once, and who gives memory back in which order: each is handed out once, in order,
// with its own bytes, which nobody else writes to until they are given back.
func TestStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := make([]byte, 64)
		sizes := rapid.SliceOfN(rapid.IntRange(1, len(mem)), 0, 60).Draw(t, "sizes")
		readers, users := rapid.IntRange(1, 8).Draw(t, "readers"), rapid.IntRange(1, 4).Draw(t, "users")
		stop := rapid.IntRange(0, len(sizes)).Draw(t, "stop")
		broken := errors.New("broken")
		var under atomic.Int64
		s := Start(mem, Plan{
			N: len(sizes), Size: func(i int) int { return sizes[i] },
			Read: func(i int, b []byte) error {
				if n := under.Add(1); int(n) > readers {
					t.Errorf("%d reads at once, of %d readers", n, readers)
				}
				defer under.Add(-1)
				for k := range b {
					b[k] = byte(i)
				}
				if i%7 == 3 {
					return broken
				}
				return nil
			},
		}, readers)
		var left atomic.Int64
		left.Store(int64(stop))
		seen := make([]atomic.Bool, len(sizes))
		var wait sync.WaitGroup
		for range users {
			wait.Go(func() {
				for left.Add(-1) >= 0 {
					c := s.Next()
					if seen[c.I].Swap(true) || c.I >= stop || len(c.Mem) != sizes[c.I] || (c.Err != nil) != (c.I%7 == 3) {
						t.Errorf("read %d of %d bytes: %d, %v", c.I, sizes[c.I], len(c.Mem), c.Err)
					}
					runtime.Gosched()
					for _, x := range c.Mem {
						if x != byte(c.I) {
							t.Errorf("read %d has a byte of read %d", c.I, x)
							break
						}
					}
					s.Done(c)
				}
			})
		}
		wait.Wait()
		s.Stop()
		s.Stop()
		if under.Load() != 0 {
			t.Fatal("a read is under way after Stop")
		}
	})
}

// Two have memory at a time, and no third. It goes when it is told to, and not while somebody has it; of one it is kept for a while.
func TestRing(t *testing.T) {
	var r Ring
	if r.Free(); r.Held() != 0 || r.Busy() {
		t.Fatal("a ring that nobody took has memory")
	}
	take := func() []byte {
		t.Helper()
		mem, ok := r.Take()
		if !ok || len(mem) != RingBytes || !r.Busy() {
			t.Fatal(ok, len(mem), r.Busy())
		}
		for i := 0; i < len(mem); i += 4096 {
			mem[i] = 1
		}
		return mem
	}
	held := func(want int, why string) {
		t.Helper()
		if got := r.Held(); got != want {
			t.Fatalf("%s: %d bytes are held, expected %d", why, got, want)
		}
	}
	a, b := take(), take()
	if &a[0] == &b[0] {
		t.Fatal("two have the same memory")
	}
	if _, ok := r.Take(); ok {
		t.Fatal("three have memory")
	}
	held(2*RingBytes, "two have some")
	r.Free()
	a[RingBytes-1], b[RingBytes-1] = 2, 2 // still there
	r.Give(a)
	held(RingBytes, "one is back, and was to be freed")
	r.Give(b)
	held(0, "both are back, and were to be freed")

	a, b = take(), take()
	r.Give(a)
	held(2*RingBytes, "one is kept")
	a = take()
	r.Give(b)
	r.Give(a)
	held(RingBytes, "one is kept, and one is not")
	if r.Free(); r.Busy() {
		t.Fatal("nobody has memory")
	}
	held(0, "nobody has any")

	r.Give(take())
	r.mu.Lock()
	r.idle.Reset(time.Millisecond)
	r.mu.Unlock()
	for r.Held() != 0 {
		time.Sleep(time.Millisecond)
	}
}
