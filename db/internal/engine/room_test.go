package engine_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// Whoever is told that there is no space is told what keeps it.
func TestNoSpaceSaysWhatKeepsIt(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 3<<20, 256<<10
	for _, by := range []string{"pinned refs keep", "open matches, and puts under way, keep"} {
		_, m := storetest.Fresh(t, o, crashtest.Plain())
		var err error
		for n := 0; err == nil; n++ {
			if err = putNth(t, m, n); err != nil {
				break
			}
			p := kv.Prompt{Tokens: crashtest.Tokens(n, 320)}
			if strings.HasPrefix(by, "pinned") {
				err = m.SetRef(t.Context(), string(rune('a'+n)), p.Prefix(320), db.RefOptions{Pinned: true})
			} else if x, merr := m.Match(t.Context(), p, db.MatchOptions{}); merr == nil {
				defer x.Close()
			}
		}
		if !strings.Contains(err.Error(), by) {
			t.Errorf("no word of %q: %v", by, err)
		}
	}
}

// A prompt that does not fit into the budget, or has more blocks than may be stored, costs nobody else anything. Nor does a record that fits only
// into a store without index and log, or in none.
func TestHopelessPutEvictsNothing(t *testing.T) {
	const budget = 32 << 20
	prompt := func(t *testing.T, _ *db.Store, m *db.Model) error {
		got, err := putBlank(m, bulkyPrompt(999, 1200))
		if !strings.Contains(fmt.Sprint(err), "the prompt") || got.Blocks > 0 {
			t.Errorf("%+v, %v", got, err)
		}
		return err
	}
	record := func(bytes int) func(*testing.T, *db.Store, *db.Model) error {
		return func(t *testing.T, s *db.Store, _ *db.Model) error {
			large := storetest.Model(t, s, crashtest.Opaque())
			_, err := large.Put(t.Context(), kv.Tokens(crashtest.Tokens(100, 32)...), kv.Rows{kv.Packed(32, 1, make([]byte, bytes))}, db.PutOptions{})
			return err
		}
	}
	for _, c := range []struct {
		what      string
		maxBlocks int64
		put       func(*testing.T, *db.Store, *db.Model) error
	}{
		{"bytes of a prompt", 0, prompt}, {"blocks of a prompt", 500, prompt},
		{"a record as large as the budget", 0, record(budget)}, {"one of twice that", 0, record(2 * budget)}, {"one just below", 0, record(budget - 4096)},
	} {
		t.Run(c.what, func(t *testing.T) {
			o := storetest.Options()
			o.Budget, o.SegmentBytes, o.MaxBlocks = budget, 2<<20, c.maxBlocks
			s, m := storetest.Fresh(t, o, bulky())
			const chats = 20
			for i := range chats {
				storetest.Must(putBlank(m, bulkyPrompt(i, 10)))(t)
			}
			if err := c.put(t, s, m); !errors.Is(err, db.ErrNoSpace) {
				t.Error(err)
			}
			if n := storetest.Stats(t, s).Evicted; n > 0 {
				t.Errorf("%d blocks were evicted", n)
			}
			for i := range chats {
				if got, _, err := m.Probe(t.Context(), bulkyPrompt(i, 10), db.MatchOptions{}); err != nil || got != 640 {
					t.Errorf("%d tokens of conversation %d are there (%v)", got, i, err)
				}
			}
			if total, _, parts := storetest.Occupied(t, s.Dir()); total > budget {
				t.Errorf("%d bytes are occupied: %v", total, parts)
			}
		})
	}
}

// What a put stored before it found no room is said.
func TestTokensOfAPutThatFoundNoRoom(t *testing.T) {
	o := putsEvict(64<<20, 2<<20)
	_, m := storetest.Fresh(t, o, bulky())
	pinned := bulkyPrompt(1, 900)
	storetest.Must(putBlank(m, pinned))(t)
	storetest.OK(t, m.SetRef(t.Context(), "pinned", pinned, db.RefOptions{Pinned: true}))
	p := bulkyPrompt(2, 1500)
	got, err := putBlank(m, p)
	if !errors.Is(err, db.ErrNoSpace) || got.Tokens == 0 || got.Tokens != 64*got.Blocks {
		t.Fatalf("%+v, %v", got, err)
	}
	if there, _, err := m.Probe(t.Context(), p, db.MatchOptions{}); err != nil || there != got.Tokens {
		t.Errorf("%d tokens are stored, the put said %d (%v)", there, got.Tokens, err)
	}
}

// Puts into a full store make room for many records at once: with a sync or two each, not with one a record.
func TestPutsIntoAFullStoreSyncSeldom(t *testing.T) {
	for _, pinned := range []float64{0, 0.8} {
		t.Run(fmt.Sprint(pinned), func(t *testing.T) {
			var syncs atomic.Int64
			disk := storetest.Failing(func(c storetest.Call) error {
				if c.Kind == "sync" {
					syncs.Add(1)
				}
				return nil
			})
			o := storetest.Options()
			o.Budget, o.SegmentBytes = 64<<20, 2<<20
			if pinned == 0 {
				o.HighWater, o.LowWater = 1, 1
			}
			s := storetest.OpenOn(t, disk, t.TempDir(), o)
			m := storetest.Model(t, s, bulky())
			n := 0
			put := func() kv.Prompt {
				n++
				p := bulkyPrompt(n, 20)
				storetest.Must(putBlank(m, p))(t)
				return p
			}
			for float64(storetest.Engine(s).Ledger.Counts().Bytes) < pinned*float64(o.Budget) {
				storetest.OK(t, m.SetRef(t.Context(), fmt.Sprint(n), put(), db.RefOptions{Pinned: true}))
			}
			for storetest.Stats(t, s).Evicted == 0 {
				put()
			}
			const puts = 40
			before := syncs.Load()
			for range puts {
				put()
			}
			if got := syncs.Load() - before; got > 6*puts {
				t.Errorf("%d syncs for %d puts of 20 blocks", got, puts)
			}
		})
	}
}

// Shrinking ends, though others put all the time: what they put is no reason to go on.
func TestShrinkBesidePuts(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 256<<20, 4<<20
	s, m := storetest.Fresh(t, o, bulky())
	var n atomic.Int64
	put := func() error {
		_, err := putBlank(m, bulkyPrompt(int(n.Add(1)), 10))
		return err
	}
	for range 20 {
		storetest.OK(t, put())
	}
	var stop atomic.Bool
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() {
			for !stop.Load() {
				if err := put(); err != nil && !errors.Is(err, db.ErrNoSpace) && !errors.Is(err, db.ErrNotStored) {
					t.Error(err)
				}
			}
		})
	}
	for range 5 {
		stored := storetest.Engine(s).Ledger.Counts().Blocks
		before := storetest.Stats(t, s).Evicted
		storetest.Must(s.Shrink(t.Context(), 0))(t)
		if gone := storetest.Stats(t, s).Evicted - before; gone > 3*stored+2000 {
			t.Errorf("%d blocks went of %d", gone, stored)
		}
	}
	stop.Store(true)
	wait.Wait()
}

// What fits is not refused: however little a codec leaves of the rows, and whatever the prompt's beginning was stored with.
func TestWhatFitsIsNotHopeless(t *testing.T) {
	for _, c := range []struct {
		first, then db.PutOptions
	}{
		{db.PutOptions{Codec: quant.ByteSplit}, db.PutOptions{Codec: quant.ByteSplit}},
		{db.PutOptions{Codec: quant.Q8_0}, db.PutOptions{Codec: quant.Raw}},
		{db.PutOptions{Codec: quant.Raw, Compression: quant.Zstd}, db.PutOptions{Codec: quant.Raw}},
	} {
		o := putsEvict(32<<20, 2<<20)
		_, m := storetest.Fresh(t, o, bulky())
		p := bulkyPrompt(1, 1000)
		if _, err := m.Put(t.Context(), p, blank(bulky(), len(p.Tokens)), c.first); err != nil {
			t.Fatalf("%+v: %v", c.first, err)
		}
		p.Tokens = crashtest.Concat(p.Tokens, crashtest.Tokens(2, 64))
		if _, err := m.Put(t.Context(), p, blank(bulky(), len(p.Tokens)), c.then); err != nil {
			t.Fatalf("%+v behind %+v: %v", c.then, c.first, err)
		}
	}
}

// A put evicts what it takes, and not what its records could take at most.
func TestPutsEvictWhatTheyTake(t *testing.T) {
	for _, with := range []db.PutOptions{{}, {Compression: quant.Zstd}, {Codec: quant.ByteSplit}} {
		o := putsEvict(32<<20, 1<<20)
		s, m := storetest.Fresh(t, o, bulky())
		n := 0
		put := func(blocks int) {
			n++
			p := bulkyPrompt(n, blocks)
			storetest.Must(m.Put(t.Context(), p, blank(bulky(), len(p.Tokens)), with))(t)
		}
		for storetest.Stats(t, s).Evicted == 0 {
			put(15)
		}
		before := storetest.Stats(t, s).Evicted
		const blocks = 300
		put(blocks)
		if gone := storetest.Stats(t, s).Evicted - before; gone > 2*blocks {
			t.Errorf("%+v: %d blocks went for %d", with, gone, blocks)
		}
	}
}

// A log that gets no more room is what the put says, and it is not tried again and again.
func TestPutIntoAFullStoreWhoseLogIsFull(t *testing.T) {
	var armed atomic.Bool
	var refused atomic.Int64
	disk := storetest.Failing(func(c storetest.Call) error {
		if armed.Load() && c.InLog() && (c.Kind == "write" || c.Kind == "allocate") {
			refused.Add(1)
			return vfs.ErrNoSpace
		}
		return nil
	})
	o := putsEvict(64<<20, 2<<20)
	s := storetest.OpenOn(t, disk, t.TempDir(), o)
	m := storetest.Model(t, s, bulky())
	put := func(i, blocks int) error {
		_, err := putBlank(m, bulkyPrompt(i, blocks))
		return err
	}
	for i := range 25 {
		storetest.OK(t, put(i, 40))
	}
	storetest.OK(t, s.Sync(t.Context()))
	armed.Store(true)
	err := put(500, 1000)
	armed.Store(false)
	if !errors.Is(err, db.ErrNoSpace) || refused.Load() > 20 {
		t.Errorf("%d times the log had no room: %v", refused.Load(), err)
	}
	storetest.Sound(t, s)
}

// smallDisk says that so much is free beside a store.
type smallDisk struct {
	vfs.FS
	total int64
	dir   string
}

func (d *smallDisk) Space(string) (uint64, int, error) {
	used := int64(0)
	filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			if info, err := vfs.OS.Stat(path); err == nil {
				used += info.Allocated
			}
		}
		return nil
	})
	return uint64(max(0, d.total-used)), 4096, nil
}

// The first put after an Open, before anybody has asked what the files occupy, knows what could be evicted.
func TestLargePutRightAfterOpenOnAFullDisk(t *testing.T) {
	disk := &smallDisk{vfs.OS, 64 << 20, t.TempDir()}
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 1<<30, 4<<20
	put := func(s *db.Store, i, blocks int) error {
		m := storetest.Model(t, s, bulky())
		_, err := putBlank(m, bulkyPrompt(i, blocks))
		return err
	}
	s := storetest.OpenOn(t, disk, disk.dir, o)
	for i := 0; storetest.Stats(t, s).Evicted == 0; i++ {
		storetest.OK(t, put(s, i, 60))
	}
	storetest.OK(t, s.Close())
	s = storetest.OpenOn(t, disk, disk.dir, o)
	storetest.OK(t, put(s, 1000, 600))
}

// What is evicted and only the store itself still looks at comes back: a put waits for that, and does not say that there is no room.
func TestPutAwaitsShortLeases(t *testing.T) {
	o := putsEvict(4<<20, 256<<10)
	s, m := storetest.Fresh(t, o, crashtest.Plain())
	n := 0
	next := func() error { n++; return putNth(t, m, n) }
	for storetest.Stats(t, s).Evicted == 0 {
		storetest.OK(t, next())
	}
	set := storetest.Engine(s).Segments
	short := set.AcquireShort()
	done := make(chan error)
	go func() {
		for range 20 {
			if err := next(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for held := int64(0); held == 0 || held != set.Held(); time.Sleep(20 * time.Millisecond) { // until nothing more is evicted
		held = set.Held()
		select {
		case err := <-done:
			t.Fatalf("the puts ended while all that they evicted was kept: %v", err)
		default:
		}
	}
	short.Release()
	storetest.OK(t, <-done)
	if x, err := m.Match(t.Context(), kv.Prompt{Tokens: crashtest.Tokens(n, 320)}, db.MatchOptions{}); err != nil || x.Tokens() != 320 {
		t.Error(err, x.Tokens())
	} else {
		x.Close()
	}
}
