//go:build linux

package full

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/tests/together/truth"
)

var (
	ctx  = context.Background()
	desc = truth.Plain("full", 128) // blocks of 16 KiB
)

func options() db.Options {
	return db.Options{
		Budget: 1 << 30, MinFree: -1, CheckpointInterval: 50 * time.Millisecond, Codec: quant.Raw, SegmentBytes: 1 << 20,
		Logger: slog.New(slog.DiscardHandler),
	}
}

func lasts(t testing.TB, d time.Duration) time.Duration {
	if v := os.Getenv("DORMOUSE_FULL"); v != "" {
		var err error
		if d, err = time.ParseDuration(v); err != nil {
			t.Fatalf("DORMOUSE_FULL: %v", err)
		}
	}
	return d
}

func seed(t testing.TB) uint64 {
	s := uint64(time.Now().UnixNano()) % 1e9
	if v := os.Getenv("DORMOUSE_FULL_SEED"); v != "" {
		var err error
		if s, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatalf("DORMOUSE_FULL_SEED: %v", err)
		}
	}
	t.Logf("DORMOUSE_FULL_SEED=%d", s)
	return s
}

// prompt is one that shares nothing with any other id.
func prompt(id uint64, blocks int) kv.Prompt { return truth.Prompt(truth.Tokens(id+1, 16*blocks)) }

func open(t testing.TB, dir string, o db.Options) (*db.Store, *db.Model) {
	t.Helper()
	s, err := db.Open(ctx, filepath.Join(dir, "store"), o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	m, err := s.Register(ctx, desc)
	if err != nil {
		t.Fatalf("model: %v", err)
	}
	return s, m.Model
}

// put stores blocks [from, to) of a prompt; what is before must be stored.
func put(m *db.Model, id uint64, from, to int) error {
	p := prompt(id, to)
	d := m.Descriptor()
	res, err := m.Put(ctx, p, truth.Filled(&d, &p, 16*from, 16*to), db.PutOptions{})
	if err == nil && res.Tokens != 16*to {
		err = fmt.Errorf("put acknowledged %d tokens of %d", res.Tokens, 16*to)
	}
	return err
}

// found restores a prompt, compares its rows, and returns how many blocks there are.
func found(m *db.Model, id uint64, blocks int) (int, error) {
	p := prompt(id, blocks)
	x, err := m.Match(ctx, p, db.MatchOptions{})
	if err != nil {
		return 0, err
	}
	defer x.Close()
	d := m.Descriptor()
	rows := truth.Empty(&d, len(p.Tokens))
	got, err := x.Restore(ctx, rows)
	if err != nil {
		return 0, err
	}
	if got.Reason.Code == db.Damaged || got.Tokens%16 != 0 {
		return 0, fmt.Errorf("restored %d tokens: %v", got.Tokens, got.Reason)
	}
	return got.Tokens / 16, truth.Check(&d, &p, rows, got.Tokens)
}

// full are the errors that a full disk may cause.
func full(err error) bool { return errors.Is(err, db.ErrNoSpace) || errors.Is(err, db.ErrNotStored) }

// TestFullDisk storms a store while a balloon breathes beside it.
func TestFullDisk(t *testing.T) {
	inSmallFS(t, func(t *testing.T, dir string) {
		d, first := lasts(t, 4*time.Second), seed(t)
		s, m := open(t, dir, options())
		b := newBalloon(t, dir)
		stop := make(chan struct{})
		var fulls int
		var beside, workers sync.WaitGroup
		beside.Go(func() { fulls = b.breathe(rand.New(rand.NewPCG(first, 99)), stop) })
		ws := make([]*worker, 5)
		var n counts
		for i := range ws {
			ws[i] = &worker{t: t, s: s, m: m, n: &n, r: rand.New(rand.NewPCG(first, uint64(i))), next: uint64(i) << 32, has: map[uint64]*chat{}}
			workers.Go(func() {
				for end := time.Now().Add(d); time.Now().Before(end) && !t.Failed(); {
					ws[i].step()
				}
			})
		}
		workers.Wait()
		close(stop)
		beside.Wait()

		// With room again, all goes on as if nothing had been, without opening the store anew.
		b.shrink(1 << 40)
		if err := put(m, 1<<60, 0, 4); err != nil {
			t.Errorf("put when there is room again: %v", err)
		}
		for what, err := range map[string]error{"checkpoint": s.Checkpoint(ctx), "sync": s.Sync(ctx)} {
			if err != nil {
				t.Errorf("%s when there is room again: %v", what, err)
			}
		}
		check(t, s, m, ws)
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		verify(t, dir, true)
		s, m = open(t, dir, options())
		if n, err := found(m, 1<<60, 4); n != 4 || err != nil {
			t.Errorf("%d blocks of what was put last, %v", n, err)
		}
		for _, w := range ws {
			w.m = m
		}
		check(t, nil, m, ws)
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		t.Logf("the disk was full %d times; %+v", fulls, n.String())
		if n.noSpace.Load() == 0 && !t.Failed() {
			t.Error("nothing ever met a full disk: this test shows nothing")
		}
	})
}

func verify(t *testing.T, dir string, last bool) {
	t.Helper()
	if !roomy(t, dir, last) {
		return
	}
	r, err := admin.Verify(ctx, filepath.Join(dir, "store"), admin.VerifyOptions{})
	if err != nil {
		t.Errorf("verify: %v", err)
	}
	for i, d := range r.Damage {
		if t.Error(d); i > 10 {
			break
		}
	}
}

// check looks for every prompt that a worker knows of: what was deleted is gone, what was pinned is whole, and no more is
// missing than was evicted.
func check(t *testing.T, s *db.Store, m *db.Model, ws []*worker) {
	t.Helper()
	missing := int64(0)
	for _, w := range ws {
		for id, c := range w.has {
			n, err := found(m, id, c.blocks+c.maybe)
			switch {
			case err != nil:
				t.Errorf("prompt %d: %v", id, err)
			case c.deleted && n > 0:
				t.Errorf("prompt %d was deleted, %d blocks are back", id, n)
			case n < c.pinned:
				t.Errorf("prompt %d was acknowledged and pinned, %d of %d blocks are left", id, n, c.pinned)
			case !c.deleted:
				missing += int64(max(0, c.blocks-n))
			}
		}
	}
	if s == nil {
		return
	}
	st, err := s.Stats()
	if err != nil {
		t.Error(err)
	} else if missing > st.Evicted {
		t.Errorf("%d acknowledged blocks are missing, %d were evicted", missing, st.Evicted)
	}
}

// counts are what the workers did.
type counts struct{ puts, restores, deletions, checkpoints, compactions, shrinks, noSpace atomic.Int64 }

func (n *counts) String() string {
	return fmt.Sprintf("%d puts, %d restores, %d deletions, %d checkpoints, %d compactions, %d shrinks; %d calls were refused for want of space",
		n.puts.Load(), n.restores.Load(), n.deletions.Load(), n.checkpoints.Load(), n.compactions.Load(), n.shrinks.Load(), n.noSpace.Load())
}

// chat is what a worker knows of a prompt.
type chat struct {
	blocks  int // acknowledged
	maybe   int // more, of puts that failed
	pinned  int // of blocks
	deleted bool
}

// worker works on prompts of its own.
type worker struct {
	t    *testing.T
	s    *db.Store
	m    *db.Model
	n    *counts
	r    *rand.Rand
	next uint64
	has  map[uint64]*chat
	live []uint64
	pins int
}

// done counts a call that may meet a full disk, and reports whether it succeeded.
func (w *worker) done(what string, n *atomic.Int64, err error) bool {
	switch {
	case err == nil:
		n.Add(1)
		return true
	case full(err):
		w.n.noSpace.Add(1)
	default:
		w.t.Errorf("%s: %v", what, err)
	}
	return false
}

func (w *worker) one() (uint64, *chat) {
	if len(w.live) == 0 {
		return 0, nil
	}
	id := w.live[w.r.IntN(len(w.live))]
	return id, w.has[id]
}

func (w *worker) step() {
	switch n := w.r.IntN(100); {
	case n < 40:
		id, blocks := w.next, 1+w.r.IntN(6)
		w.next++
		w.has[id] = &chat{}
		w.live = append(w.live, id)
		w.put(id, 0, blocks)
	case n < 50:
		if id, c := w.one(); c != nil && c.blocks > 0 && c.blocks < 12 {
			w.put(id, c.blocks, c.blocks+1+w.r.IntN(3))
		}
	case n < 75:
		id, c := w.one()
		if c == nil {
			return
		}
		blocks, err := found(w.m, id, c.blocks+c.maybe)
		if err == nil && blocks < c.pinned {
			err = fmt.Errorf("%d of %d blocks of a pinned prompt", blocks, c.pinned)
		}
		if err != nil {
			w.t.Errorf("restore on a disk that may be full: %v", err)
		}
		w.n.restores.Add(1)
	case n < 82:
		w.delete()
	case n < 85:
		if id, c := w.one(); c != nil && w.pins < 8 && c.blocks > 0 && c.pinned == 0 {
			if w.done("set ref", &w.n.puts, w.m.SetRef(ctx, fmt.Sprint(id), prompt(id, c.blocks), db.RefOptions{Pinned: true})) {
				c.pinned = c.blocks
				w.pins++
			}
		}
	case n < 92:
		w.done("checkpoint", &w.n.checkpoints, w.s.Checkpoint(ctx))
	case n < 94:
		_, err := w.s.Compact(ctx, db.CompactOptions{All: true})
		w.done("compact", &w.n.compactions, err)
	case n < 95:
		_, err := w.s.Shrink(ctx, 4<<20)
		w.done("shrink", &w.n.shrinks, err)
	}
}

func (w *worker) put(id uint64, from, to int) {
	c := w.has[id]
	if w.done("put", &w.n.puts, put(w.m, id, from, to)) {
		c.blocks, c.maybe = to, max(0, c.blocks+c.maybe-to)
	} else {
		c.maybe = max(c.maybe, to-c.blocks)
	}
}

func (w *worker) delete() {
	if len(w.live) == 0 {
		return
	}
	i := w.r.IntN(len(w.live))
	id := w.live[i]
	c := w.has[id]
	if _, err := w.m.Delete(ctx, prompt(id, 1)); w.done("delete", &w.n.deletions, err) {
		if c.pinned > 0 {
			w.pins--
		}
		*c = chat{deleted: true, maybe: c.blocks + c.maybe}
		w.live[i] = w.live[len(w.live)-1]
		w.live = w.live[:len(w.live)-1]
	} else if err != nil {
		c.pinned, c.maybe, c.blocks = 0, c.blocks+c.maybe, 0 // it may be done, and not yet durable
	}
}
