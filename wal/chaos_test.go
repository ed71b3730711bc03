package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// TestChaos does everything that a log can be asked for in a random order, on disks that are full now and then, with operations
// that fail, kills, power cuts and closes, and replays it after each. DORMOUSE_CHAOS=n tries n seeds, and
// DORMOUSE_CHAOS_SEED begins with another one.
func TestChaos(t *testing.T) {
	first, n := rand.Uint64N(1<<32), uint64(200)
	fmt.Sscan(os.Getenv("DORMOUSE_CHAOS"), &n)
	fmt.Sscan(os.Getenv("DORMOUSE_CHAOS_SEED"), &first)
	t.Logf("DORMOUSE_CHAOS_SEED=%d", first)
	for seed := first; seed < first+n; seed++ {
		for _, faults := range []bool{false, true} {
			c := newChaos(seed, faults)
			if err := c.run(); err != nil {
				t.Fatalf("seed %d, faults %t: %v\n%s", seed, faults, err, strings.Join(c.trace[max(0, len(c.trace)-60):], "\n"))
			}
		}
	}
}

// chaos is a log, and what is known of it.
type chaos struct {
	rnd    *rand.Rand
	faults bool
	trace  []string
	fs     *memFS
	o      Options
	log    *Log

	written map[uint64]wrote   // acknowledged
	maybe   map[uint64][]wrote // failed to be appended; a power cut may bring them all the same
	last    uint64             // of the acknowledged
	durable uint64
	rotated uint64 // the file that the last rotation began, 0 if none since the open
	covered uint64 // frames up to here are in that file's snapshot
	removed uint64 // frames up to here may be gone
}

func newChaos(seed uint64, faults bool) *chaos {
	c := &chaos{
		rnd: rand.New(rand.NewPCG(seed, 7)), faults: faults, fs: newMemFS(),
		written: map[uint64]wrote{}, maybe: map[uint64][]wrote{}, rotated: 1,
	}
	c.o = memOptions(c.fs)
	c.o.PreallocBytes = []int64{4096, 8192, 12 << 10}[c.rnd.IntN(3)]
	return c
}

func (c *chaos) note(format string, args ...any) {
	c.trace = append(c.trace, fmt.Sprintf(format, args...))
}

// snapshot is the small state as of lsn.
func (c *chaos) snapshot(lsn uint64) []byte {
	return fmt.Appendf(nil, "snap %d %s", lsn, strings.Repeat("s", []int{0, 10, 300, 5000}[c.rnd.IntN(4)]))
}

// disturb has operations fail with that probability from now on.
func (c *chaos) disturb(p float64) {
	c.fs.before = nil
	if p == 0 {
		return
	}
	c.fs.before = func(op, name string) error {
		if op == "list" || op == "read" || op == "open" || c.rnd.Float64() > p {
			return nil
		}
		c.note("  %s %s fails", op, name)
		switch half := c.rnd.IntN(2) == 0; {
		case op == "write" && half:
			return errShort(c.rnd.IntN(300))
		case op == "rename" && half:
			return errDone
		}
		return errInjected
	}
}

// allowed passes on what must not fail.
func (c *chaos) allowed(err error) error {
	if c.faults || errors.Is(err, vfs.ErrNoSpace) {
		return nil
	}
	return err
}

func (c *chaos) run() (err error) {
	if c.log, err = Create(c.o, 1, 1, c.snapshot(0)); err != nil {
		return err
	}
	for range 100 {
		p := 0.0
		if c.faults && c.rnd.IntN(4) == 0 {
			p = 0.1
		}
		c.disturb(p)
		if err := c.step(p); err != nil {
			return err
		}
		if err := c.accounts(); err != nil {
			return err
		}
	}
	// Where there is room and nothing fails, the log goes on.
	c.disturb(0)
	c.fs.limit = 0
	for range 3 {
		if c.log.Err() != nil {
			break
		}
		_, err := c.log.Append(2, []byte("z"))
		if err == nil {
			var id uint64
			if id, _, err = c.log.Rotate(c.snapshot); err == nil {
				err = c.log.Remove(id)
			}
		}
		if err != nil {
			return fmt.Errorf("stuck: %w", err)
		}
	}
	return nil
}

func (c *chaos) step(p float64) error {
	switch x := c.rnd.IntN(100); {
	case x < 35:
		return c.append()
	case x < 45:
		err := c.log.Sync(c.last)
		if c.note("sync %d: %v", c.last, err); err == nil {
			c.durable = c.last
		}
	case x < 60:
		id, lsn, err := c.log.Rotate(c.snapshot)
		c.note("rotate to %d at %d: %v", id, lsn, err)
		if err != nil {
			return c.allowed(err)
		}
		if lsn != c.last {
			return fmt.Errorf("rotated at %d, the last one is %d", lsn, c.last)
		}
		c.durable, c.rotated, c.covered = lsn, id, lsn
	case x < 70:
		err := c.log.Remove(c.rotated)
		c.note("remove below %d: %v", c.rotated, err)
		c.removed = max(c.removed, c.covered)
		return c.allowed(err)
	case x < 76:
		c.fs.limit = []int64{0, c.fs.used() + c.rnd.Int64N(2*c.o.PreallocBytes), c.fs.used(), c.fs.used()}[c.rnd.IntN(4)]
		c.note("limit %d", c.fs.limit)
	case x < 80:
		if f, err := c.fs.Create("/gift"); err == nil {
			f.WriteAt(ownBytes(9000), 0)
			f.Sync()
			f.Close()
			c.fs.SyncDir("/")
		}
		c.note("donate: %v", c.log.Donate("/gift"))
	case x >= 92 || c.log.Err() != nil:
		return c.reopen(p)
	}
	return nil
}

func (c *chaos) append() error {
	w := wrote{uint8(2 + c.rnd.IntN(5)), fmt.Sprint(c.rnd.Uint64(), strings.Repeat("x", []int{0, 5, 100, 2000}[c.rnd.IntN(4)]))}
	f := c.log.Append
	if c.rnd.IntN(2) == 0 {
		f = c.log.AppendReserved
	}
	lsn, err := f(w.kind, []byte(w.payload))
	c.note("append %d bytes as %d: %v", len(w.payload), lsn, err)
	if err != nil {
		c.maybe[c.last+1] = append(c.maybe[c.last+1], w)
		return c.allowed(err)
	}
	if lsn != c.last+1 {
		return fmt.Errorf("LSN %d after %d", lsn, c.last)
	}
	c.last, c.written[lsn] = lsn, w
	return nil
}

// reopen ends the run in one way or another, and checks what is replayed.
func (c *chaos) reopen(p float64) error {
	poisoned := c.log.Err() != nil
	how := c.rnd.IntN(3)
	least := c.last
	c.disturb(0)
	switch how {
	case 0:
		c.fs = c.fs.kill()
	case 1:
		c.fs = c.fs.powerCut(c.rnd)
		least = c.durable
	case 2:
		c.disturb(p)
		err := c.log.Close()
		if c.note("close: %v", err); err == nil {
			c.durable = c.last
		}
		c.disturb(0)
	}
	if c.rnd.IntN(2) == 0 && c.fs.limit > 0 {
		c.fs.limit = c.fs.used()
	}
	c.o.FS = c.fs
	c.note("%s; durable %d, last %d", []string{"killed", "power cut", "closed"}[how], c.durable, c.last)
	k, err := replayAll(c.o)
	if err != nil {
		return err
	}
	if err := k.consecutive(); err != nil {
		return err
	}
	switch got := k.rec.LastLSN; {
	case len(k.rec.Damage) > 0 || len(k.rec.Files) == 0:
		return fmt.Errorf("replayed: %+v", k.rec)
	case got < least:
		return fmt.Errorf("replayed to %d, at least %d: %+v", got, least, k.rec)
	case got > c.last && (got > c.last+1 || len(c.maybe[got]) == 0 || !poisoned && how != 1):
		return fmt.Errorf("replayed to %d, at most %d: %+v", got, c.last, k.rec)
	}
	if err := c.compare(k, least); err != nil {
		return err
	}
	for lsn := range c.written { // those that were removed may still come back
		if lsn > k.rec.LastLSN {
			delete(c.written, lsn)
		}
	}
	for _, f := range k.frames {
		c.written[f.LSN] = wrote{f.Kind, string(f.Payload)}
	}
	clear(c.maybe)
	c.last, c.durable, c.rotated = k.rec.LastLSN, 0, 0
	if how == 1 {
		c.durable = c.last
	}
	c.log, err = CreateLater(c.o, k.rec.LastFile+1, c.last+1, func() []byte { return c.snapshot(c.last) })
	return err
}

// compare says which frame or snapshot is missing up to least, or is another.
func (c *chaos) compare(k kept, least uint64) error {
	seen := map[uint64]bool{}
	for _, f := range k.frames {
		seen[f.LSN] = true
		got := wrote{f.Kind, string(f.Payload)}
		w, acked := c.written[f.LSN]
		ok := acked && w == got
		for _, w := range c.maybe[f.LSN] {
			ok = ok || w == got && f.LSN > least
		}
		if !ok {
			return fmt.Errorf("frame %d is another", f.LSN)
		}
	}
	for lsn := c.removed + 1; lsn <= least; lsn++ {
		if !seen[lsn] {
			return fmt.Errorf("frame %d is missing", lsn)
		}
	}
	for lsn, s := range k.snapshots {
		if !strings.HasPrefix(s, fmt.Sprintf("snap %d ", lsn)) {
			return fmt.Errorf("snapshot %d is %.30s", lsn, s)
		}
	}
	return nil
}

// accounts compares what the log says to occupy with what it does. After a failure it may be off by what that left.
func (c *chaos) accounts() error {
	var used int64
	for name, n := range c.fs.names {
		if strings.HasPrefix(name, c.o.Dir+"/") {
			used += int64(len(n.now))
		}
	}
	if d := c.log.Bytes() - used; c.log.Bytes() < 0 || !c.faults && (d > 8192 || d < -8192) {
		return fmt.Errorf("%d bytes are accounted for, %d are used", c.log.Bytes(), used)
	}
	return nil
}
