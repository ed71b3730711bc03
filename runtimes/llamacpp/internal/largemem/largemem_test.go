package largemem

import (
	"bytes"
	"sync"
	"testing"
)

// Memory is one owner's from Make to Free, however many ask at once, and as large as was asked for.
func TestOneOwner(t *testing.T) {
	defer Trim()
	var wait sync.WaitGroup
	for owner := range 8 {
		wait.Go(func() {
			for i := range 50 {
				n := 1<<20 + (owner*7919+i*104729)%(2<<20)
				b := Make(n)
				if len(b) != n {
					t.Errorf("%d bytes, expected %d", len(b), n)
				}
				for j := 0; j < n; j += 1000 {
					b[j] = byte(owner)
				}
				for j := 0; j < n; j += 1000 {
					if b[j] != byte(owner) {
						t.Errorf("byte %d is of owner %d, not %d", j, b[j], owner)
						break
					}
				}
				Free(b)
			}
		})
	}
	wait.Wait()
}

// Of all that was freed one state of moderate size is kept, and that until Trim.
func TestWhatIsKept(t *testing.T) {
	Trim()
	if !reclaimable(Make(1 << 20)) {
		t.Skip("SKIPPED: this system cannot take back what is kept, so nothing is")
	}
	held := func() int { return len(kept.b) }
	a, b := Make(10<<20), Make(12<<20)
	Free(a)
	Free(b)
	if n := held(); n != 12<<20 {
		t.Errorf("%d bytes are kept, expected the last %d", n, 12<<20)
	}
	c := Make(11 << 20)
	if n := held(); n != 0 || cap(c) != 12<<20 {
		t.Errorf("memory of %d bytes was made, and %d are kept", cap(c), n)
	}
	Free(c)
	Free(Make(keptBytes + 1)) // gives back what is too small
	if n := held(); n != 0 {
		t.Errorf("%d bytes are kept of what is too large", n)
	}
	d := Make(10 << 20)
	copy(d, bytes.Repeat([]byte{1}, len(d)))
	Free(d)
	Trim()
	if n := held(); n != 0 {
		t.Errorf("%d bytes are kept after Trim", n)
	}
}
