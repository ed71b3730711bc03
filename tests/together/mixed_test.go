package together

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/tests/together/truth"
)

// TestMixed has 16 goroutines call every public method of one small store that evicts all the time, also from callbacks, with
// shared matches, suspensions, closes and lost indexes between. Whatever a restore gives is right; at the end the store is
// whole, no lease is left and no goroutine. It is worth most under the race detector.
func TestMixed(t *testing.T) {
	d, first := lasts(t, 10*time.Second), seed(t)
	x := &mix{
		t: t, dir: t.TempDir(), end: time.Now().Add(d),
		descs: []kv.Descriptor{truth.Plain("plain", 32), truth.Windowed("windowed", 32, 40), truth.Opaque("opaque"), truth.Plain("retiring", 64)},
		calls: map[string]*atomic.Int64{},
	}
	for name := range methods {
		x.calls[name] = new(atomic.Int64)
	}
	x.open()
	done := make(chan struct{})
	var workers sync.WaitGroup
	for g := range 16 {
		workers.Go(func() {
			w := &worker{mix: x, r: rand.New(rand.NewPCG(first, uint64(g)))}
			if g == 0 { // the rarest call is made, however slow the machine
				for name := range methods {
					w.call(name)
				}
			}
			for time.Now().Before(x.end) && !t.Failed() {
				w.step()
			}
		})
	}
	go x.watch(done)
	workers.Wait()
	close(done)
	x.settle()
	for name, n := range x.calls {
		if n.Load() == 0 && !t.Failed() {
			t.Errorf("%s was never called", name)
		}
	}
}

// Every public method is called by TestMixed.
func TestMixedHasAllMethods(t *testing.T) {
	for _, typ := range []reflect.Type{reflect.TypeFor[*db.Store](), reflect.TypeFor[*db.Model](), reflect.TypeFor[*db.Match]()} {
		for i := range typ.NumMethod() {
			if name := typ.Elem().Name() + "." + typ.Method(i).Name; methods[name].do == nil {
				t.Errorf("%s is missing", name)
			}
		}
	}
}

// mix is a store under test and what its workers share.
type mix struct {
	t     *testing.T
	dir   string
	end   time.Time
	descs []kv.Descriptor
	calls map[string]*atomic.Int64
	now   atomic.Pointer[opened]
	ranks atomic.Int64 // calls of the policy

	mu   sync.Mutex
	pool []*shared // open matches; guarded by mu

	restores, tokens, evicted atomic.Int64
}

// opened is the store between an Open and a Close.
type opened struct {
	s      *db.Store
	models []*db.Model
}

// shared is a match that any worker may use.
type shared struct {
	x      *db.Match
	desc   kv.Descriptor
	closed atomic.Bool // Close was called, or is about to be
}

type countingPolicy struct {
	db.Policy
	n *atomic.Int64
}

func (p countingPolicy) Rank(l db.Leaf) uint64 {
	p.n.Add(1)
	return p.Policy.Rank(l)
}

func (x *mix) options() db.Options {
	o := options()
	o.Budget, o.MaxBlocks, o.SegmentBytes = 6<<20, 500, 256<<10
	o.CheckpointInterval = 50 * time.Millisecond
	o.Policy = countingPolicy{db.CostAware(), &x.ranks}
	o.Progress = func(db.Progress) {}
	return o
}

func (x *mix) open() {
	s, err := db.Open(ctx, x.dir, x.options())
	if err != nil {
		x.t.Errorf("open: %v", err)
		return
	}
	o := &opened{s: s}
	for _, d := range x.descs {
		m, err := s.Register(ctx, d)
		if err != nil {
			x.t.Errorf("model: %v", err)
		}
		o.models = append(o.models, m.Model)
	}
	x.now.Store(o)
}

// watch ends a test that hangs with the stacks of all.
func (x *mix) watch(done <-chan struct{}) {
	last, since := int64(-1), time.Now()
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Second):
		}
		sum := int64(0)
		for _, n := range x.calls {
			sum += n.Load()
		}
		if sum != last {
			last, since = sum, time.Now()
		}
		if time.Since(since) > 2*time.Minute {
			panic("no call has returned for two minutes\n" + stacks())
		}
	}
}

// settle ends it all and looks at what is left.
func (x *mix) settle() {
	t, s := x.t, x.now.Load().s
	if err := s.Resume(ctx); err != nil {
		t.Errorf("resume: %v", err)
	}
	for _, h := range x.pool {
		if err := h.x.Close(); err != nil {
			t.Errorf("close of a match: %v", err)
		}
	}
	if err := s.Sync(ctx); err != nil {
		t.Errorf("sync when no match is open: %v", err)
	}
	st, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if st.OpenMatches != 0 || st.PendingRecords != 0 || !st.OldestLease.IsZero() {
		t.Errorf("%d matches are open, %d records wait, the oldest lease is of %v", st.OpenMatches, st.PendingRecords, st.OldestLease)
	}
	x.within(st)
	verified(t, s)
	noneLeft(t)
	total := int64(0)
	for _, n := range x.calls {
		total += n.Load()
	}
	t.Logf("%d calls, %d restores of %d tokens compared; %d blocks evicted, %d calls of the policy; %d suspensions, %d closes",
		total, x.restores.Load(), x.tokens.Load(), x.evicted.Load()+st.Evicted, x.ranks.Load(), x.calls["Store.Suspend"].Load(),
		x.calls["Store.Close"].Load())
}

// within sees to it that the store has kept to its budget since it was opened.
func (x *mix) within(st db.Stats) {
	if st.DiskHighWater > st.Budget {
		x.t.Errorf("%d bytes were used of a budget of %d", st.DiskHighWater, st.Budget)
	}
}

// worker is one of the goroutines.
type worker struct {
	*mix
	*opened
	r *rand.Rand
}

func (w *worker) step() {
	n := w.r.IntN(methodWeights)
	for name, m := range methods {
		if n -= m.weight; n < 0 {
			w.call(name)
			return
		}
	}
}

func (w *worker) call(name string) {
	w.opened = w.now.Load()
	if err := methods[name].do(w); err != nil && !allowed(err) {
		w.t.Errorf("%s: %v", name, err)
	}
	w.calls[name].Add(1)
}

// allowed are the errors that a call may return here.
func allowed(err error) bool {
	for _, ok := range []error{
		db.ErrNoSpace, db.ErrNotStored, db.ErrSuspended, db.ErrRetired, db.ErrNotFound, db.ErrLeased, db.ErrClosed, context.Canceled,
	} {
		if errors.Is(err, ok) {
			return true
		}
	}
	return errors.As(err, new(*db.PendingError))
}

// ctx is one that may be cancelled on the way.
func (w *worker) ctx() context.Context {
	if w.r.IntN(20) > 0 {
		return ctx
	}
	c, cancel := context.WithCancel(ctx)
	time.AfterFunc(time.Duration(w.r.IntN(2000))*time.Microsecond, cancel)
	return c
}

func (w *worker) model() *db.Model { return w.models[w.r.IntN(len(w.models))] }

// prompt makes one of few beginnings and many ends.
func (w *worker) prompt() kv.Prompt {
	r := w.r
	p := truth.Prompt(truth.Tokens(uint64(r.IntN(5)), 100)[:20+r.IntN(80)])
	if r.IntN(2) == 0 {
		p.Tokens = append(p.Tokens, truth.Tokens(uint64(100+r.IntN(40)), 120)[:1+r.IntN(120)]...)
	}
	if r.IntN(3) == 0 {
		p.Scope, p.ScopeStart = []string{"alice", "bob"}[r.IntN(2)], min([]int{10, 32, 40}[r.IntN(3)], len(p.Tokens))
	}
	if r.IntN(6) == 0 && len(p.Tokens) > 70 {
		p.Spans = []kv.Span{{Start: 45, Len: 20, Hash: kv.Hash{byte(r.IntN(2))}}}
	}
	if r.IntN(10) == 0 {
		p.Adapters = []kv.Adapter{{Hash: kv.Hash{1}, Scale: 1}}
	}
	return p
}

// part is a prefix that may be asked for.
func (w *worker) part(p kv.Prompt) kv.Prompt { return p.Prefix(p.Clip(1 + w.r.IntN(len(p.Tokens)))) }

// matched calls fn with one of the open matches.
func (w *worker) matched(fn func(h *shared) error) error {
	w.mu.Lock()
	if len(w.pool) == 0 {
		w.mu.Unlock()
		return nil
	}
	h := w.pool[w.r.IntN(len(w.pool))]
	w.mu.Unlock()
	err := fn(h)
	if err != nil && h.closed.Load() && err.Error() == "match is closed" {
		return nil
	}
	return err
}

// taken takes a match out of the pool, to be closed.
func (w *worker) taken() *shared {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pool) == 0 {
		return nil
	}
	i := w.r.IntN(len(w.pool))
	h := w.pool[i]
	w.pool[i] = w.pool[len(w.pool)-1]
	w.pool = w.pool[:len(w.pool)-1]
	h.closed.Store(true)
	return h
}

// reopen closes the store, if no match keeps it from that, and opens it again, sometimes without its index.
func (w *worker) reopen() error {
	for h := w.taken(); h != nil; h = w.taken() {
		if err := h.x.Close(); err != nil {
			return err
		}
	}
	before, _ := w.s.Stats()
	if err := w.s.Close(); err != nil {
		return err
	}
	w.within(before)
	w.evicted.Add(before.Evicted)
	if w.r.IntN(3) == 0 {
		if err := os.Remove(filepath.Join(w.dir, "index.db")); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("index.db: %w", err)
		}
	}
	w.open()
	return nil
}
