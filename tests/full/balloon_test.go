//go:build linux

package full

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// balloon is a file beside the store that takes the room away.
type balloon struct {
	t    *testing.T
	f    *os.File
	size int64
}

func newBalloon(t *testing.T, dir string) *balloon {
	f, err := os.Create(filepath.Join(dir, "balloon"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &balloon{t: t, f: f}
}

// grow takes up to n bytes, as much as there is; it says whether there was less.
func (b *balloon) grow(n int64) (full bool) {
	for step := int64(1 << 20); n > 0; {
		step = min(step, n)
		err := unix.Fallocate(int(b.f.Fd()), 0, b.size, step)
		switch {
		case err == nil:
			b.size += step
			n -= step
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.ENOSPC):
			b.t.Errorf("balloon: %v", err)
			return true
		case step <= 4096:
			return true
		default:
			step = max(4096, step/4)
		}
	}
	return false
}

// fill takes all that there is.
func (b *balloon) fill() { b.grow(1 << 40) }

// shrink gives n bytes back.
func (b *balloon) shrink(n int64) {
	b.size = max(0, b.size-n)
	if err := b.f.Truncate(b.size); err != nil {
		b.t.Errorf("balloon: %v", err)
	}
}

// breathe grows and shrinks until stop, and counts how often the disk was full.
func (b *balloon) breathe(r *rand.Rand, stop <-chan struct{}) (full int) {
	for {
		select {
		case <-stop:
			return full
		case <-time.After(time.Duration(r.IntN(20)) * time.Millisecond):
		}
		switch r.IntN(5) {
		case 0, 1:
			if b.grow(r.Int64N(6 << 20)) {
				full++
			}
		case 2:
			b.fill()
			full++
		case 3:
			b.shrink(r.Int64N(4 << 20))
		case 4:
			b.shrink(r.Int64N(20 << 20))
		}
	}
}
