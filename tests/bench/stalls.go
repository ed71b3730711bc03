package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// putStalls is the P99.9 of a put of one block in a store that is full, so that it evicts, and beside the deletion of a large scope; each
// beside the same in a store with nothing else to do.
func putStalls(r *run) error {
	if r.wants("put_p999_at_budget") {
		if err := r.putsAtBudget(); err != nil {
			return err
		}
	}
	if r.wants("put_p999_during_delete") {
		return r.putsBesideDelete()
	}
	return nil
}

// putOne times puts of a new block each.
func putOne(s *stored, number *int) lap {
	rows := s.source.rows(blockTokens)
	return func() (time.Duration, error) {
		*number++
		prompt := kv.Prompt{Tokens: tokens(*number, blockTokens)}
		return since(func() error { _, err := s.put(prompt, rows); return err })
	}
}

func (r *run) putsAtBudget() error {
	desc := descriptor(r.size.layers, kv.F16)
	var quietly, full []float64
	var evicted int64
	for range r.size.busyRounds {
		for _, budget := range []int64{1 << 40, r.size.budget} {
			o := options()
			o.Budget, o.SegmentBytes = budget, 64<<20
			o.CheckpointInterval, o.CheckpointBytes = 0, 0 // as a store has them that nobody told otherwise
			s, err := r.storePrompt("put_p999", desc, 1, o)
			if err != nil {
				return err
			}
			number := 1000
			one := putOne(s, &number)
			all, err := sample(r.size.stalls, one)
			st, stErr := s.Stats()
			if err = errors.Join(err, stErr, s.discard()); err != nil {
				return err
			}
			if budget == 1<<40 {
				quietly = append(quietly, percentile(all, 0.999))
				continue
			}
			full, evicted = append(full, percentile(all, 0.999)), evicted+st.Evicted
		}
	}
	if evicted == 0 {
		return errors.New("nothing was evicted")
	}
	r.emit(figure{
		name: "put_p999_at_budget", unit: "ms", values: millis(full), ratios: quotients(full, quietly), bar: atMost(10),
		reference: fmt.Sprintf("puts of a block of %d tokens each, in a store with a budget of %d MiB, %d blocks evicted; beside a store with room: %s",
			blockTokens, r.size.budget>>20, evicted, ms(quietly)),
	})
	return nil
}

func (r *run) putsBesideDelete() error {
	var quietly, beside []float64
	var took []float64
	puts := 0
	for range r.size.busyRounds {
		s, err := r.storePrompt("put_p999", descriptor(r.size.layers, kv.F16), 1, options())
		if err != nil {
			return err
		}
		measure := func() error {
			scope, err := s.fillScope(r.size.deleted, manyTokens/blockTokens, 0)
			if err != nil {
				return err
			}
			number := 1000
			one := putOne(s, &number)
			if err := writeBack(s.dir); err != nil {
				return err
			}
			end := quiet()
			defer end()
			var wait sync.WaitGroup
			var failed error
			over := make(chan struct{})
			wait.Go(func() {
				defer close(over)
				start := time.Now()
				var got db.Deleted
				if got, failed = s.DeleteScope(ctx, scope); failed == nil && got.Blocks != r.size.deleted {
					failed = fmt.Errorf("deleted %d blocks, not %d", got.Blocks, r.size.deleted)
				}
				took = append(took, time.Since(start).Seconds())
			})
			var busy []float64
			for deleting := true; deleting; {
				d, err := one()
				if err != nil {
					failed = errors.Join(failed, err)
					break
				}
				busy = append(busy, d.Seconds())
				select {
				case <-over:
					deleting = false
				default:
				}
			}
			wait.Wait()
			if failed != nil {
				return failed
			}
			end()
			// As many puts, of as many bytes: what they leave in the page cache is written back in both, and that takes the disk, too.
			if err := writeBack(s.dir); err != nil {
				return err
			}
			alone, err := sampleAll(len(busy), one)
			if err != nil {
				return err
			}
			puts += len(busy)
			quietly, beside = append(quietly, percentile(alone, 0.999)), append(beside, percentile(busy, 0.999))
			return nil
		}
		if err := errors.Join(measure(), s.discard()); err != nil {
			return err
		}
	}
	r.emit(figure{
		name: "put_p999_during_delete", unit: "ms", values: millis(beside), ratios: quotients(beside, quietly), bar: atMost(10),
		reference: fmt.Sprintf("puts of a block of %d tokens each while a scope of %s blocks is deleted, which takes %s (%d puts); beside as many puts with nothing else to do: %s",
			blockTokens, count(r.size.deleted), ms(took), puts, ms(quietly)),
	})
	return nil
}

// fillScope stores so many small blocks of another model in a scope of their own, so many of them in a prompt, behind so many tokens that all
// prompts share.
func (s *stored) fillScope(blocks, perPrompt, shared int) (scope string, err error) {
	m, err := s.Register(ctx, tiny)
	if err != nil {
		return "", err
	}
	scope = "deleted"
	rows := newKVCache(tiny, shared+perPrompt*blockTokens)
	err = parallel(processors(), (blocks+perPrompt-1)/perPrompt, func(i int) error {
		n := shared + min(perPrompt, blocks-i*perPrompt)*blockTokens
		prompt := kv.Prompt{Tokens: tokens(i, n), Scope: scope}
		copy(prompt.Tokens, tokens(-1, shared))
		got, err := m.Model.Put(ctx, prompt, rows.rows(n), db.PutOptions{})
		if err == nil && got.Tokens != n {
			err = fmt.Errorf("a put stored %d tokens of %d", got.Tokens, n)
		}
		return err
	})
	return scope, errors.Join(err, s.Checkpoint(ctx))
}
