package read_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// wide has rows of 8 KiB in all.
func wide() kv.Descriptor {
	d := crashtest.Plain()
	d.Name = "wide"
	for i := range d.Tensors {
		d.Tensors[i].Width = 1024
	}
	return d
}

// A restore of what is not in memory reads all of it; what was prefetched is in memory soon.
func TestColdRestore(t *testing.T) {
	o := storetest.Options()
	o.SegmentBytes = 5 << 20
	dir := memdir.Disk(t)
	s := storetest.Open(t, dir, o)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 1500)} // 12 MB
	storetest.Put(t, storetest.Model(t, s, wide()), p)
	storetest.OK(t, s.Close())
	canCool := cool(t, dir)
	s = storetest.Open(t, dir, o)
	if storetest.Expect(t, storetest.Model(t, s, wide()), p, 1500); !canCool {
		t.Skip("SKIPPED: nothing of this file system ever leaves the memory: only the restore itself was tested")
	}

	inMemory := func() (n, all int) {
		for x, err := range s.Blocks(t.Context()) {
			storetest.OK(t, err)
			if all++; resident(t, dir, x) {
				n++
			}
		}
		return n, all
	}
	again := func() *db.Model {
		storetest.OK(t, s.Close())
		cool(t, dir)
		s = storetest.Open(t, dir, o)
		return storetest.Model(t, s, wide())
	}
	m := again()
	if n, all := inMemory(); n > all/4 {
		t.Fatalf("%d of %d blocks are in memory after they were dropped", n, all)
	}
	if n, err := m.Prefetch(t.Context(), p, db.MatchOptions{}); n != 1500 || err != nil {
		t.Fatal(n, err)
	}
	storetest.Eventually(t, "all blocks in memory after Prefetch", func() bool { n, all := inMemory(); return n == all })

	m = again()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Prefetch(over, p, db.MatchOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	x := storetest.Match(t, m, p)
	defer x.Close()
	if _, err := x.Restore(over, storetest.Empty(wide(), 1500)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if n, all := inMemory(); n > all/2 {
		t.Errorf("%d of %d blocks were read by calls that were cancelled before", n, all)
	}
	layers := 0
	rows := storetest.Empty(wide(), 1500)
	got, err := x.RestoreLayers(t.Context(), rows, func(layer, tokens int) { layers++ })
	if err != nil || got.Tokens != 1500 || layers != 2 {
		t.Errorf("%+v, %v, %d layers", got, err, layers)
	}
	storetest.CheckRows(t, wide(), &p, rows, 1500)
}

// What was restored around the page cache is read into it afterwards if it has a name, or was matched before: all of it, once. Else nothing
// is. Pressure and Suspend have it forgotten.
func TestReadAgain(t *testing.T) {
	disk := storetest.Cold(nil)
	dir := memdir.Disk(t)
	s := storetest.OpenOn(t, disk, dir, storetest.Options())
	m := storetest.Model(t, s, wide())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 700)}
	storetest.Put(t, m, p)
	var stored int64
	for b, err := range s.Blocks(t.Context()) {
		storetest.OK(t, err)
		stored += b.Bytes
	}
	var mu sync.Mutex
	var asked, reads int64
	disk.Before(func(c storetest.Call) error {
		mu.Lock()
		defer mu.Unlock()
		if c.Kind == "willneed" {
			asked += c.N
		}
		if c.Kind == "readdirect" {
			reads++
		}
		return nil
	})
	so := func() int64 { mu.Lock(); defer mu.Unlock(); return asked }
	again := func() bool { return storetest.Engine(s).Source.Again.Waiting() }

	storetest.Expect(t, m, p, 700)
	if again() || so() != 0 {
		t.Fatalf("waiting %t, %d bytes were asked for, of what nobody ever wanted before", again(), so())
	}
	storetest.OK(t, s.Checkpoint(t.Context())) // the index gets to know of that match
	storetest.Expect(t, m, p, 700)
	storetest.Eventually(t, "all asked for once more", func() bool { return so() >= stored && !again() })
	if so() != stored {
		t.Errorf("%d bytes asked for, of %d", so(), stored)
	}

	other := kv.Prompt{Tokens: crashtest.Tokens(2, 700)}
	storetest.Put(t, m, other)
	storetest.OK(t, m.SetRef(t.Context(), "other", other, db.RefOptions{}))
	before := so()
	if n, err := m.Prefetch(t.Context(), other, db.MatchOptions{}); n != 700 || err != nil || so() != before+stored {
		t.Fatalf("prefetched %d tokens, %v, %d bytes", n, err, so()-before)
	}
	mu.Lock()
	reads = 0
	mu.Unlock()
	storetest.Expect(t, m, other, 700)
	mu.Lock()
	if reads != 0 {
		t.Errorf("%d reads around the page cache of what is on its way into it", reads)
	}
	mu.Unlock()
	storetest.Expect(t, m, p, 700) // the other prompt was not asked for
	mu.Lock()
	if reads == 0 {
		t.Error("no reads around the page cache of what nobody asked for")
	}
	mu.Unlock()
	storetest.Eventually(t, "nothing waits", func() bool { return !again() })

	third := kv.Prompt{Tokens: crashtest.Tokens(3, 700)}
	storetest.Put(t, m, third)
	storetest.OK(t, m.SetRef(t.Context(), "third", third, db.RefOptions{}))
	before = so()
	storetest.Expect(t, m, third, 700)
	storetest.Eventually(t, "a prompt with a name asked for once more", func() bool { return so() >= before+stored && !again() })

	e := storetest.Engine(s)
	for _, end := range []func() error{
		func() error { _, err := s.Pressure(t.Context(), db.Moderate); return err },
		func() error { return s.Suspend(t.Context()) },
	} {
		mem, ok := e.Source.Ring.Take()
		if !ok {
			t.Fatal("the ring is taken")
		}
		before := so()
		e.Source.Again.Add([]segments.Loc{{Segment: 1, Offset: 8192, Length: 5 << 20}})
		if !again() || so() != before {
			t.Errorf("waiting %t beside a cold restore, %d bytes were asked for", again(), so()-before)
		}
		if err := end(); err != nil || again() {
			t.Errorf("%v; waiting %t", err, again())
		}
		e.Source.Ring.Give(mem)
		e.Source.Ring.Free()
		if so() != before {
			t.Errorf("%d bytes were asked for after they were forgotten", so()-before)
		}
	}
}

// Restores add while several drop: Drop waits for all who were at work, and no more.
func TestReadAgainTogether(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	a := storetest.Engine(s).Source.Again
	var wait sync.WaitGroup
	for i := range 6 {
		wait.Go(func() {
			for range 3000 {
				if i < 2 {
					a.Add([]segments.Loc{{Segment: 1, Offset: 8192, Length: 1 << 20}})
				} else {
					a.Drop()
				}
				time.Sleep(time.Duration(i) * time.Microsecond)
			}
		})
	}
	wait.Wait()
	a.Drop()
	a.Add([]segments.Loc{{Segment: 1, Offset: 8192, Length: 100 << 20}})
	a.Drop()
	if a.Waiting() {
		t.Error("something waits")
	}
}

// Who restores rows from a later position on pays for these alone: nothing that lies before is read, whatever became of it.
func TestRestoreOfLaterRows(t *testing.T) {
	for name, d := range map[string]kv.Descriptor{"plain": crashtest.Plain(), "windowed": crashtest.Windowed(40)} {
		t.Run(name, func(t *testing.T) {
			s, m := storetest.Fresh(t, storetest.Options(), d)
			p := kv.Tokens(crashtest.Tokens(1, 160)...)
			storetest.Put(t, m, p)
			first := 96 // blocks of 16
			var later int64
			var before []db.Block
			for b, err := range s.Blocks(t.Context()) {
				switch {
				case err != nil:
					t.Fatal(err)
				case b.First < first:
					before = append(before, b)
				case m.Descriptor().Groups[b.Group].Window == 0 || b.First+b.Tokens > 160-m.Descriptor().Groups[b.Group].Window:
					later += b.Bytes
				}
			}
			for _, b := range before { // whoever reads them says so
				storetest.Write(t, storetest.SegmentPath(s.Dir(), b.Segment), b.Offset, bytes.Repeat([]byte{0xa5}, int(b.Bytes)))
			}
			for call, restore := range map[string]func(x *db.Match, rows kv.Rows) (db.Restored, error){
				"Restore":      func(x *db.Match, rows kv.Rows) (db.Restored, error) { return x.Restore(t.Context(), rows) },
				"RestoreRange": func(x *db.Match, rows kv.Rows) (db.Restored, error) { return x.RestoreRange(t.Context(), rows) },
				"RestoreLayers": func(x *db.Match, rows kv.Rows) (db.Restored, error) {
					return x.RestoreLayers(t.Context(), rows, func(int, int) {})
				},
			} {
				x := storetest.Match(t, m, p)
				rows := make(kv.Rows, len(m.Descriptor().Tensors))
				for i, tensor := range m.Descriptor().Tensors {
					rows[i] = kv.Packed(first, 160-first, make([]byte, (160-first)*tensor.RowBytes()))
				}
				got, err := restore(x, rows)
				if err != nil || got.Tokens != 160 || got.Bytes != later {
					t.Errorf("%s: %d tokens (%v), %d bytes were read, expected %d; %v", call, got.Tokens, got.Reason, got.Bytes, later, err)
				}
				storetest.OK(t, x.Close())
				for i, tensor := range m.Descriptor().Tensors {
					from, size := first, tensor.RowBytes()
					if w := m.Descriptor().Groups[tensor.Group].Window; w > 0 {
						from = 160 - w
					}
					for pos := from; pos < 160; pos++ {
						if !bytes.Equal(rows[i].Pieces[0].Mem[(pos-first)*size:(pos-first+1)*size], storetest.Truth(m.Descriptor(), &p, i, pos)) {
							t.Fatalf("%s: tensor %d differs at %d", call, i, pos)
						}
					}
				}
			}
			x := storetest.Match(t, m, p)
			defer x.Close()
			got, err := x.Restore(t.Context(), storetest.Empty(m.Descriptor(), 160))
			if err != nil || got.Tokens != 0 || !errors.Is(got.Reason.Err, db.ErrCorrupt) {
				t.Errorf("from the first row on: %d tokens (%v), %v", got.Tokens, got.Reason, err)
			}
		})
	}
}
