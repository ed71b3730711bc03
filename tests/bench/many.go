package main

import (
	"errors"
	"fmt"
	"time"
)

// manyGo is what a block's eviction, and its deletion with its scope, takes where many go at once, beside the same where a quarter of them go.
func manyGo(r *run) error {
	evict := func(s *stored, _ string) (int, error) {
		st, err := s.Stats()
		if err != nil {
			return 0, err
		}
		if _, err := s.Shrink(ctx, st.DiskBytes/2); err != nil {
			return 0, err
		}
		after, err := s.Stats()
		return int(after.Evicted), err
	}
	remove := func(s *stored, scope string) (int, error) {
		got, err := s.DeleteScope(ctx, scope)
		return got.Blocks, err
	}
	for _, c := range []struct {
		name   string
		shared int // tokens with which all prompts begin
		do     func(s *stored, scope string) (blocks int, err error)
	}{
		{"evict_many", 0, evict},
		{"evict_many_shared", blockTokens, evict},
		{"delete_many", 0, remove},
		{"delete_many_shared", blockTokens, remove},
	} {
		if !r.wants(c.name) {
			continue
		}
		var few, many []float64
		for range r.size.busyRounds {
			for _, blocks := range []int{r.size.deleted / 4, r.size.deleted} {
				each, err := r.goes(blocks, 1, c.shared, c.do)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				if blocks < r.size.deleted {
					few = append(few, each)
				} else {
					many = append(many, each)
				}
			}
		}
		r.emit(figure{
			name: c.name, unit: "us", values: micros(many), ratios: quotients(many, few), bar: atMost(2),
			reference: fmt.Sprintf("a block, of a store of %s prompts of a small one each, behind %d tokens that all share; of one of %s: %s",
				count(r.size.deleted), c.shared, count(r.size.deleted/4), number(median(micros(few)))+" us"),
		})
	}
	for _, c := range []struct {
		name, of string
		do       func(s *stored, scope string) (blocks int, err error)
	}{
		{"evict_long", "of half a store", evict},
		{"delete_long", "of a scope", remove},
	} {
		if !r.wants(c.name) {
			continue
		}
		var short, long []float64
		for range r.size.busyRounds {
			for _, to := range []struct {
				each  *[]float64
				share int
			}{{&short, 4}, {&long, 1}} {
				each, err := r.goes(4*r.size.long, r.size.long/to.share, 0, c.do)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				*to.each = append(*to.each, each)
			}
		}
		r.emit(figure{
			name: c.name, unit: "us", values: micros(long), ratios: quotients(long, short), bar: atMost(2),
			reference: fmt.Sprintf("a block, %s of 4 prompts of %s tokens; of 16 prompts of a quarter of that: %s",
				c.of, count(r.size.long*blockTokens), number(median(micros(short)))+" us"),
		})
	}
	return nil
}

// goes is how long do takes for each block that it takes out of a store of so many small ones, so many in a prompt, in seconds.
func (r *run) goes(blocks, perPrompt, shared int, do func(s *stored, scope string) (int, error)) (each float64, err error) {
	s, err := r.storePrompt("many", tiny, 1, options())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.discard()) }()
	scope, err := s.fillScope(blocks, perPrompt, shared)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	n, err := do(s, scope)
	took := time.Since(start)
	if err == nil && n < blocks/4 {
		err = fmt.Errorf("%d of %d blocks went", n, blocks)
	}
	return took.Seconds() / float64(max(1, n)), err
}
