package vfs_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// Of many that fail at once one is told, before any of them hears of it, and all hear of that one.
func TestPoison(t *testing.T) {
	var p vfs.Poison
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	var told atomic.Int32
	first := make(chan error, 1)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			err := p.Set(errors.New("failed"), func(err error) {
				if p.Err() != nil {
					t.Error("somebody hears of it before it is told")
				}
				first <- err // a second one would wait for ever
				told.Add(1)
			})
			if told.Load() != 1 || !errors.Is(err, vfs.ErrPoisoned) || err != p.Err() {
				t.Errorf("told %d times, %v, then %v", told.Load(), err, p.Err())
			}
		})
	}
	wg.Wait()
	if err := <-first; err != p.Err() {
		t.Errorf("%v was told, and it is %v", err, p.Err())
	}
}

// The first byte that is not zero is found behind any number of zeros.
func TestFirstNonZero(t *testing.T) {
	for _, n := range []int{0, 1, 4095, 4096, 4097, 10_000} {
		b := make([]byte, n)
		if i := vfs.FirstNonZero(b); i != -1 || !vfs.Blank(b) {
			t.Errorf("%d zeros: %d", n, i)
		}
		for _, at := range []int{0, n / 2, n - 1} {
			if at < 0 || at >= n {
				continue
			}
			b[at] = 1
			if i := vfs.FirstNonZero(b); i != at || vfs.Blank(b) {
				t.Errorf("%d of %d: %d", at, n, i)
			}
			b[at] = 0
		}
	}
}
