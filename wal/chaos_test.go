package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
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
			c := newChaos(t, seed, faults)
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
	disk   *disk
	full   bool // the disk has a limit
	log    *Log

	written map[uint64]wrote   // acknowledged
	maybe   map[uint64][]wrote // failed to be appended; a power cut may bring them all the same
	last    uint64             // of the acknowledged
	durable uint64
	rotated uint64 // the file that the last rotation began, 0 if none since the open
	covered uint64 // frames up to here are in that file's snapshot
	removed uint64 // frames up to here may be gone

	sureFile uint64 // in this file, all up to sureEnd was durable after some step
	sureEnd  int64
}

func newChaos(t *testing.T, seed uint64, faults bool) *chaos {
	c := &chaos{
		rnd: rand.New(rand.NewPCG(seed, 7)), faults: faults, disk: newDisk(t),
		written: map[uint64]wrote{}, maybe: map[uint64][]wrote{}, rotated: 1,
	}
	c.disk.o.PreallocBytes = []int64{4096, 8192, 12 << 10}[c.rnd.IntN(3)]
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
	c.disk.Before(nil)
	if p == 0 {
		return
	}
	c.disk.Before(func(op crashfs.Op) error {
		if !op.Changes() || c.rnd.Float64() > p {
			return nil
		}
		c.note("  %s %s fails", op.Kind, op.Name)
		switch half := c.rnd.IntN(2) == 0; {
		case op.Kind == "write" && half:
			return &crashfs.Short{Bytes: c.rnd.IntN(300), Err: errInjected}
		case op.Kind == "rename" && half:
			return &crashfs.Late{Err: errInjected}
		}
		return errInjected
	})
}

// allowed passes on what must not fail.
func (c *chaos) allowed(err error) error {
	if c.faults || errors.Is(err, vfs.ErrNoSpace) {
		return nil
	}
	return err
}

func (c *chaos) run() (err error) {
	if c.log, err = Create(c.disk.o, 1, 1, c.snapshot(0)); err != nil {
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
		if c.log.Begun() && c.log.DurableLSN() == c.log.LastLSN() {
			c.sureFile, c.sureEnd = c.log.FileID(), c.log.end
		}
		if err := c.accounts(); err != nil {
			return err
		}
	}
	// Where there is room and nothing fails, the log goes on.
	c.disturb(0)
	c.disk.SetBytes(0)
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
		if c.note("sync %d: %v", c.last, err); err != nil {
			return nil
		}
		c.durable = c.last
		if got := c.log.DurableLSN(); got != c.last || got != c.log.LastLSN() {
			return fmt.Errorf("frame %d is the last, %d was synced: durable is %d", c.log.LastLSN(), c.last, got)
		}
	case x < 60:
		id, lsn, err := c.log.Rotate(c.snapshot)
		c.note("rotate to %d at %d: %v", id, lsn, err)
		if err != nil {
			return c.allowed(err)
		}
		if lsn != c.last || id != c.log.FileID() || c.log.DurableLSN() != lsn {
			return fmt.Errorf("rotated to %d at %d, the last one is %d, durable is %d", id, lsn, c.last, c.log.DurableLSN())
		}
		c.durable, c.rotated, c.covered = lsn, id, lsn
	case x < 70:
		err := c.log.Remove(c.rotated)
		c.note("remove below %d: %v", c.rotated, err)
		c.removed = max(c.removed, c.covered)
		return c.allowed(err)
	case x < 76:
		room := []int64{-c.disk.Used(), c.rnd.Int64N(2 * c.disk.o.PreallocBytes), 0, 0}[c.rnd.IntN(4)]
		c.disk.fill(room)
		c.full = room >= 0
		c.note("room for %d", room)
	case x < 80:
		const gift = logDir + "/gift"
		if f, err := c.disk.Create(gift); err == nil {
			f.WriteAt(ownBytes(9000), 0)
			f.Sync()
			f.Close()
			c.disk.SyncDir(logDir)
		}
		c.note("donate: %v", c.log.Donate(gift))
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
	how := c.rnd.IntN(4)
	least := c.last
	c.disturb(0)
	switch how {
	case 0:
		c.disk = c.disk.kill()
	case 1:
		c.disk = c.disk.cut(c.rnd)
		least = c.durable
	case 3:
		c.disk = c.disk.kill()
		if c.sureFile == c.log.FileID() {
			c.tear()
		}
		least = c.durable
	case 2:
		c.disturb(p)
		err := c.log.Close()
		if c.note("close: %v", err); err == nil {
			c.durable = c.last
		}
		c.disturb(0)
	}
	if c.log.Err() != nil && how != 1 { // memory may hold for clean what the disk never got
		err := RewriteFiles(c.disk.o)
		if errors.Is(err, vfs.ErrNoSpace) { // for holes that a power cut left: who opens the store hears of it
			c.disk.SetBytes(0)
			c.full, err = false, RewriteFiles(c.disk.o)
		}
		if err != nil {
			return err
		}
	}
	if c.rnd.IntN(2) == 0 && c.full {
		c.disk.fill(0)
	}
	c.note("%s; durable %d, last %d", []string{"killed", "power cut", "closed", "torn"}[how], c.durable, c.last)
	k, err := replayAll(c.disk.o)
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
	case got > c.last && (got > c.last+1 || len(c.maybe[got]) == 0 || !poisoned && how%2 == 0):
		return fmt.Errorf("replayed to %d, at most %d: %+v", got, c.last, k.rec)
	}
	if err := errors.Join(c.compare(k, least), c.verify(k)); err != nil {
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
	if how == 1 { // else what was taken back and not synced may come with the next power cut
		clear(c.maybe)
	}
	c.last, c.durable, c.rotated, c.sureFile = k.rec.LastLSN, 0, 0, 0
	if how == 1 {
		c.durable = c.last
	}
	c.log, err = CreateLater(c.disk.o, k.rec.LastFile+1, c.last+1, func() []byte { return c.snapshot(c.last) })
	return err
}

// tear spoils what need not be durable of the newest file, as a crash may.
func (c *chaos) tear() {
	path := c.disk.o.path(c.sureFile)
	b := c.disk.read(path)
	from := c.sureEnd + c.rnd.Int64N(int64(len(b))-c.sureEnd+1)
	if c.rnd.IntN(2) == 0 {
		c.disk.resize(path, from)
		return
	}
	to := from + c.rnd.Int64N(min(int64(len(b))-from, 600)+1)
	for i := from; i < to; i++ {
		b[i] = byte(c.rnd.Uint32())
	}
	c.disk.SetBytes(0) // a power cut may have left holes there
	c.disk.write(path, from, b[from:to])
	if c.full {
		c.disk.fill(0)
	}
}

// verify compares what Verify says with what was replayed.
func (c *chaos) verify(k kept) error {
	damaged, ends, err := verify(c.disk.o)
	torn := 0
	for i, f := range k.rec.Files {
		if f.ID != k.rec.Files[0].ID+uint64(i) {
			return fmt.Errorf("files %+v", k.rec.Files)
		}
		if f.Torn {
			torn++
		}
	}
	if err != nil || len(damaged) > 0 || len(ends) != torn {
		return fmt.Errorf("Verify: %v, %v, %w; replay says %d torn ends", damaged, ends, err, torn)
	}
	return nil
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

// accounts compares what the log says to occupy with what its files do, holes that a power cut left counted or not. After a failure it
// may be off by what that left.
func (c *chaos) accounts() error {
	var least, most int64
	names, err := c.disk.List(logDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		info, err := c.disk.Stat(logDir + "/" + name)
		if err != nil {
			return err
		}
		if Named(name) {
			least, most = least+info.Allocated, most+roundUp(max(info.Size, info.Allocated), blockBytes)
		}
	}
	if n := c.log.Bytes(); n < 0 || !c.faults && (n > most+8192 || n < least-8192) {
		return fmt.Errorf("%d bytes are accounted for, %d to %d are used by %v", n, least, most, names)
	}
	return nil
}
