package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

const (
	storyLength = 2048             // tokens of the prompt that is restored
	busyLimit   = 20 * time.Second // for collecting the restores of one P99
)

// busyWork is what another goroutine does, again and again, while restores are timed.
type busyWork struct {
	name, what string
	do         func(s *stored, number int, during func(func() error) error) error
}

// busyWorks: during is called around the part that counts; restores that touch no such part are left out. The first two have nothing to do with
// a store: what any other goroutine costs a restore that has all processors.
var busyWorks = []busyWork{
	{"restore_p99_beside_sleep", "another goroutine sleeps for 5 ms at a time, and does nothing else", func(s *stored, number int, during func(func() error) error) error {
		return during(func() error { time.Sleep(5 * time.Millisecond); return nil })
	}},
	{"restore_p99_beside_count", "another goroutine counts", func(s *stored, number int, during func(func() error) error) error {
		return during(func() error {
			for end := time.Now().Add(5 * time.Millisecond); time.Now().Before(end); {
			}
			return nil
		})
	}},
	{"restore_p99_during_put", "another goroutine puts prompts of 1,024 tokens", func(s *stored, number int, during func(func() error) error) error {
		return during(func() error { return s.putSome(number, 16) })
	}},
	{"restore_p99_during_checkpoint", "another goroutine puts a block and checkpoints; only restores beside a checkpoint count", func(s *stored, number int, during func(func() error) error) error {
		if err := s.putSome(number, 1); err != nil {
			return err
		}
		return during(func() error { return s.Checkpoint(ctx) })
	}},
	{"restore_p99_during_compact", "another goroutine puts prompts, deletes half of them and compacts; only restores beside a compaction count", compactSome},
	{"restore_p99_during_evict", "another goroutine puts prompts of 1,024 tokens into a full store; only restores beside a put that evicts count", evictSome},
	{"restore_p99_during_delete", "another goroutine puts a scope of 5,000 small blocks and deletes it; only restores beside a deletion count", deleteSome},
}

// putSome stores a new prompt of so many blocks.
func (s *stored) putSome(number, blocks int) error {
	n := blocks * blockTokens
	_, err := s.put(kv.Prompt{Tokens: tokens(number, n)}, s.source.rows(n))
	return err
}

// compactSome leaves segments half dead, and compacts them. What was moved goes afterwards, so that the next time there is
// as much to do.
func compactSome(s *stored, number int, during func(func() error) error) error {
	const prompts, blocks = 8, 4
	remove := func(from int) error {
		for i := from; i < prompts; i += 2 {
			got, err := s.model.Delete(ctx, kv.Prompt{Tokens: tokens(number*prompts+i, blockTokens)})
			if err == nil && got.Blocks != blocks {
				err = fmt.Errorf("deleted %d blocks, not %d", got.Blocks, blocks)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	for i := range prompts {
		if err := s.putSome(number*prompts+i, blocks); err != nil {
			return err
		}
	}
	if err := remove(0); err != nil {
		return err
	}
	if err := during(func() error {
		got, err := s.Compact(ctx, db.CompactOptions{All: true})
		s.moved += got.Bytes
		return err
	}); err != nil {
		return err
	}
	return remove(1)
}

// evictSome fills the store, and puts another prompt.
func evictSome(s *stored, number int, during func(func() error) error) error {
	for i := 0; ; i++ {
		st, err := s.Stats()
		if err != nil {
			return err
		}
		if st.Evicted > 0 {
			return during(func() error { return s.putSome(number, 16) })
		}
		if err := s.putSome(1<<20+i, storyLength/blockTokens); err != nil {
			return err
		}
	}
}

// deleteSome stores a scope, and deletes it.
func deleteSome(s *stored, number int, during func(func() error) error) error {
	scope, err := s.fillScope(5000, manyTokens/blockTokens, 0)
	if err != nil {
		return err
	}
	return during(func() error { _, err := s.DeleteScope(ctx, scope); return err })
}

// restoreBusy is the P99 of restoring a prompt of 2,048 tokens while a store is written to, beside the same alone.
func restoreBusy(r *run) (err error) {
	o := options()
	o.Budget, o.SegmentBytes = 3<<30, 16<<20 // what is put meanwhile is evicted at some time
	s, err := r.storePrompt("restore_p99", descriptor(r.size.layers, kv.F16), storyLength/blockTokens, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.discard()) }()
	if err := s.model.SetRef(ctx, "restored", s.prompt, db.RefOptions{Pinned: true}); err != nil {
		return err
	}
	dst := newKVCache(s.desc, storyLength)
	rows := dst.rows(storyLength)
	restore := func() (time.Duration, error) {
		return since(func() error { _, err := s.restore(s.prompt, rows); return err })
	}
	number := 1000
	for _, w := range busyWorks {
		if !r.wants(w.name) {
			continue
		}
		var alone, busy []float64
		s.moved = 0
		counted, took := 0, time.Duration(0)
		for range r.size.busyRounds {
			a, err := sample(r.size.restores, restore)
			if err != nil {
				return err
			}
			start := time.Now()
			b, err := beside(s, w, &number, func(busyNow func() bool) ([]float64, error) {
				return sampleWhile(r.size.restores, restore, busyNow)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if len(b) == 0 {
				return fmt.Errorf("%s: no restore overlapped in %v", w.name, busyLimit)
			}
			counted, took = counted+len(b), took+time.Since(start)
			alone, busy = append(alone, percentile(a, 0.99)), append(busy, percentile(b, 0.99))
		}
		if err := dst.compare(s.source); err != nil {
			return err
		}
		moved := ""
		if s.moved > 0 {
			moved = fmt.Sprintf("; %d MiB were moved", s.moved>>20)
		}
		r.emit(figure{
			name: w.name, unit: "ms", values: millis(busy), ratios: quotients(busy, alone),
			reference: fmt.Sprintf("Match, Restore and Close of %d tokens, %d MiB of f16, in the page cache, while %s (%d restores in %.1f s%s); beside the P99 alone: %s",
				storyLength, dst.bytes()>>20, w.what, counted, took.Seconds(), moved, ms(alone)),
		})
	}
	return nil
}

// sample times a lap so often; the first tenth does not count.
func sample(n int, l lap) (all []float64, err error) {
	all, err = sampleAll(n/10+n, l)
	if err != nil {
		return nil, err
	}
	return all[n/10:], nil
}

// sampleAll times a lap so often.
func sampleAll(n int, l lap) (all []float64, err error) {
	defer quiet()()
	for range n {
		took, err := l()
		if err != nil {
			return nil, err
		}
		all = append(all, took.Seconds())
	}
	return all, nil
}

// sampleWhile collects so many laps that began or ended while busyNow says so, or as many as the time limit allows.
func sampleWhile(n int, l lap, busyNow func() bool) (all []float64, err error) {
	defer quiet()()
	for end := time.Now().Add(busyLimit); len(all) < n && time.Now().Before(end); {
		before := busyNow()
		took, err := l()
		if err != nil {
			return nil, err
		}
		if before || busyNow() {
			all = append(all, took.Seconds())
		}
	}
	return all, nil
}

// beside runs fn while another goroutine does w.
func beside(s *stored, w busyWork, number *int, fn func(busyNow func() bool) ([]float64, error)) (all []float64, err error) {
	var now, stop atomic.Bool
	var wg sync.WaitGroup
	var failed error
	begun := make(chan struct{})
	wg.Go(func() {
		first := sync.OnceFunc(func() { close(begun) })
		defer first()
		for !stop.Load() && failed == nil {
			*number++
			failed = w.do(s, *number, func(part func() error) error {
				now.Store(true)
				defer now.Store(false)
				first()
				return part()
			})
		}
	})
	<-begun
	all, err = fn(now.Load)
	stop.Store(true)
	wg.Wait()
	return all, errors.Join(err, failed)
}
