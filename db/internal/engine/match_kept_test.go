package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// The law at random: an open match that was restored once gives the same again until it is closed, whatever goes on.
func TestOpenMatchesKeep(t *testing.T) {
	length := 300 * time.Millisecond
	if s := os.Getenv("DORMOUSE_MATCHES"); s != "" {
		length, _ = time.ParseDuration(s)
	}
	for _, d := range []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(24), crashtest.Hybrid()} {
		for _, holes := range []bool{true, false} {
			t.Run(fmt.Sprint(d.Name, " holes ", holes), func(t *testing.T) { openMatchesKeep(t, d, holes, length) })
		}
	}
}

func openMatchesKeep(t *testing.T, d kv.Descriptor, holes bool, length time.Duration) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 12<<20, 128<<10
	o.HighWater, o.LowWater = 0.7, 0.5
	o.CheckpointInterval = 200 * time.Millisecond
	disk := vfs.FS(vfs.OS)
	if !holes {
		disk = crashtest.NoHoles{FS: vfs.OS}
	}
	s := storetest.OpenOn(t, disk, t.TempDir(), o)
	m := storetest.Model(t, s, d)
	stop := time.Now().Add(length)
	var wg sync.WaitGroup
	var mu sync.Mutex
	count := map[string]int{}
	note := func(what string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			what += ": " + short(err)
		}
		count[what]++
	}
	prompt := func(r *rand.Rand) kv.Prompt {
		system := crashtest.Tokens(r.IntN(4), 40)
		p := kv.Prompt{Tokens: crashtest.Concat(system, crashtest.Tokens(100+r.IntN(40), 1+r.IntN(200)))}
		if r.IntN(2) == 0 {
			p.Scope, p.ScopeStart = fmt.Sprint("s", r.IntN(6)), 40
		}
		return p
	}
	rowsOf := func(p *kv.Prompt) kv.Rows { return storetest.Filled(d, p, 0, len(p.Tokens)) }
	ctx := context.Background()
	for w := range 3 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), uint64(time.Now().UnixNano())))
			type held struct {
				x    *db.Match
				p    kv.Prompt
				n    int
				ext  kv.Prompt
				hist string
			}
			var open []held
			check := func(h *held, first bool) {
				rows := storetest.Empty(d, len(h.p.Tokens))
				got, err := h.x.Restore(ctx, rows)
				if err != nil {
					t.Errorf("restore: %v", err)
					return
				}
				if err := crashtest.Check(d, &h.p, rows, got.Tokens); err != nil {
					t.Errorf("%v", err)
				}
				if first {
					h.n = got.Tokens
				} else if got.Tokens != h.n {
					t.Errorf("an open match gave %d, now %d tokens: %v (%s)", h.n, got.Tokens, got.Reason, h.hist)
					h.n = got.Tokens
				}
				if got.Reason.Code == db.Damaged {
					t.Errorf("damaged: %v", got.Reason)
				}
			}
			for time.Now().Before(stop) && !t.Failed() {
				if len(open) < 5 {
					p := prompt(r)
					_, err := m.Put(ctx, p, rowsOf(&p), db.PutOptions{KeepStates: r.IntN(4)})
					note("put", err)
					q := p
					q.Tokens = crashtest.Concat(p.Tokens[:max(p.ScopeStart, 1+r.IntN(len(p.Tokens)))], crashtest.Tokens(r.IntN(1000), 8))
					x, err := m.Match(ctx, q, db.MatchOptions{})
					note("match", err)
					if err == nil {
						h := held{x: x, p: q}
						check(&h, true)
						open = append(open, h)
					}
					continue
				}
				k := r.IntN(len(open))
				h := &open[k]
				switch r.IntN(8) {
				case 0, 1:
					check(h, false)
				case 2:
					_, err := m.Put(ctx, h.p, rowsOf(&h.p), db.PutOptions{})
					note("put of a match's prompt", err)
				case 3, 4:
					if h.ext.Tokens == nil {
						h.ext = h.p
						h.ext.Tokens = h.p.Tokens[:max(h.n, h.p.ScopeStart)]
					}
					h.ext.Tokens = crashtest.Concat(h.ext.Tokens, crashtest.Tokens(r.IntN(1000), 1+r.IntN(30)))
					if len(h.ext.Tokens) < 400 {
						_, err := h.x.Extend(ctx, h.ext, rowsOf(&h.ext), db.PutOptions{KeepStates: r.IntN(4)})
						note("extend", err)
						h.hist += fmt.Sprint(" ext", len(h.ext.Tokens), err)
					}
				case 5:
					n := 0
					var before []byte
					err := h.x.View(ctx, func(p db.StoredPlane) error {
						if n++; n == 1 {
							before = bytes.Clone(p.Bytes)
							time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
							if !bytes.Equal(before, p.Bytes) {
								t.Error("viewed bytes changed")
							}
						}
						return nil
					})
					if err != nil {
						t.Errorf("view of a restored match: %v (%s)", err, h.hist)
					}
				case 6:
					if h.n > 40 {
						_, err := m.Delete(ctx, h.p.Prefix(h.n))
						note("delete of a match's prefix", err)
						h.hist += " del"
					}
				case 7:
					check(h, false)
					storetest.OK(t, h.x.Close())
					open[k] = open[len(open)-1]
					open = open[:len(open)-1]
				}
			}
			for i := range open {
				check(&open[i], false)
				open[i].x.Close()
			}
		})
	}
	wg.Go(func() {
		r := rand.New(rand.NewPCG(9, uint64(time.Now().UnixNano())))
		for time.Now().Before(stop) && !t.Failed() {
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
			p := prompt(r)
			switch r.IntN(9) {
			case 0:
				_, err := s.Compact(ctx, db.CompactOptions{All: true})
				note("compact", err)
			case 1:
				_, err := s.DeleteScope(ctx, fmt.Sprint("s", r.IntN(6)))
				note("delete scope", err)
			case 2:
				_, err := m.Delete(ctx, p)
				note("delete", err)
			case 3:
				note("set ref", m.SetRef(ctx, fmt.Sprint(r.IntN(5)), p.Prefix(40), db.RefOptions{Pinned: r.IntN(2) == 0}))
			case 4:
				note("drop ref", s.DeleteRef(ctx, fmt.Sprint(r.IntN(5))))
			case 5:
				_, err := s.Shrink(ctx, 0)
				note("shrink", err)
			case 6:
				note("sync", s.Sync(ctx))
			case 7:
				_, err := storetest.Engine(s).Inside().EvictBlocks(r.IntN(200))
				note("evict", err)
			case 8:
				_, _, err := m.Probe(ctx, p, db.MatchOptions{})
				note("probe", err)
			}
		}
	})
	wg.Wait()
	t.Log(count)
	storetest.OK(t, s.Sync(ctx))
	e := storetest.Engine(s)
	if held := e.Segments.Held(); held != 0 {
		t.Errorf("%d bytes held in the end", held)
	}
	idle(t, "end", s)
	storetest.Sound(t, s)
	if used := e.Budget.Measure(); used > o.Budget {
		t.Errorf("%d used", used)
	}
}

// short is an error for a count.
func short(err error) string {
	var missing *db.NotStoredError
	switch {
	case errors.Is(err, db.ErrNoSpace):
		return "no space"
	case errors.As(err, &missing):
		return fmt.Sprint("not stored: ", missing.Reason.Code)
	case errors.As(err, new(*db.PendingError)):
		return "pending"
	}
	return err.Error()
}

// beforeOpen is a disk that runs something once before a segment is opened, when the test has said what.
func beforeOpen(what *atomic.Pointer[func()]) *storetest.Disk {
	return storetest.Failing(func(c storetest.Call) error {
		if c.Kind == "open" && c.InSegments() {
			if do := what.Swap(nil); do != nil {
				storetest.Meanwhile(*do)
			}
		}
		return nil
	})
}

// A block that is evicted after a match found it, and before the match rests on it, is none that the match rests on: what it
// promises cannot be evicted.
func TestMatchBesideAnEviction(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 48)}
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
	storetest.OK(t, s.Close())
	var before atomic.Pointer[func()]
	s = storetest.OpenOn(t, beforeOpen(&before), dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	met := false
	evict := func() { // the match compares the tokens of the last block
		met = true
		if n, err := storetest.Engine(s).Inside().EvictBlocks(1); err != nil || n != 1 {
			t.Error(n, err)
		}
	}
	before.Store(&evict)
	q := p.Prefix(40)
	x := storetest.Match(t, m, q)
	defer x.Close()
	if !met {
		t.Fatal("nothing was evicted meanwhile")
	}
	storetest.Must(storetest.Engine(s).Inside().EvictBlocks(3))(t)
	rows := storetest.Empty(crashtest.Plain(), 40)
	promised := x.Tokens()
	got, err := x.Restore(t.Context(), rows)
	if err != nil || got.Tokens != promised || promised < 32 {
		t.Fatalf("a match of %d tokens gives %d (%v, %v)", promised, got.Tokens, got.Reason, err)
	}
	storetest.CheckRows(t, crashtest.Plain(), &q, rows, got.Tokens)
}

// A state that is given up after a match found it, and before the match rests on it, is none that the match promises.
func TestMatchBesideAStateThatGoes(t *testing.T) {
	for _, d := range []kv.Descriptor{crashtest.Hybrid(), crashtest.Opaque()} {
		dir := t.TempDir()
		s := storetest.Open(t, dir, storetest.Options())
		p := kv.Tokens(crashtest.Tokens(1, 64)...)
		for _, n := range []int{20, 32, 45, 64} {
			storetest.PutState(t, storetest.Model(t, s, d), p.Prefix(n), 0)
		}
		storetest.OK(t, s.Close())
		var before atomic.Pointer[func()]
		s = storetest.OpenOn(t, beforeOpen(&before), dir, storetest.Options())
		m := storetest.Model(t, s, d)
		met := false
		thin := func() { // the match compares the tokens of the last block
			met = true
			if err := storetest.Engine(s).Inside().ThinStates(storetest.Engine(s).Catalog.Model(m.Fingerprint()), &p, 2); err != nil {
				t.Error(err)
			}
		}
		before.Store(&thin)
		q := p.Prefix(40)
		x := storetest.Match(t, m, q)
		defer x.Close()
		if !met {
			t.Fatal("no state went meanwhile")
		}
		promised := x.Tokens()
		rows := storetest.Empty(d, len(q.Tokens))
		got, err := x.Restore(t.Context(), rows)
		if err != nil || got.Tokens != promised || promised != 20 {
			t.Errorf("%s: a match of %d tokens gives %d (%v, %v), expected 20", d.Name, promised, got.Tokens, got.Reason, err)
		}
		storetest.CheckRows(t, d, &q, rows, got.Tokens)
	}
}
