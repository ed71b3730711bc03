package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// hugeTimes are the times of opening and of matching in a store of ten million blocks, beside a small one.
func hugeTimes(r *run) error {
	small, err := r.blockStore(r.size.small)
	if err != nil {
		return err
	}
	huge, err := r.blockStore(r.size.huge)
	if err != nil {
		return err
	}
	const named = 10_000_000
	if r.wants("open_1e7") {
		times, err := interleave(r.size.opens, small.timeOpen, huge.timeOpen)
		if err != nil {
			return err
		}
		r.emit(figure{name: "open_1e7", unit: "ms", values: millis(times[1]), ratios: quotients(times[1], times[0]), bar: atMost(2),
			reference: openWhat + r.size.smaller(named, huge.blocks) + "; beside open_1e4, " + ms(times[0])})
	}
	if r.wants("match_1e7_p99") {
		if err := r.hugeMatches(named, small, huge); err != nil {
			return err
		}
	}
	for _, name := range footprintNames("1e7") {
		if r.wants(name) {
			return r.storeFootprints("1e7", named, small, huge)
		}
	}
	return nil
}

// hugeMatches matches in both stores in turn.
func (r *run) hugeMatches(named int, small, huge *blockStore) (err error) {
	random := rand.New(rand.NewPCG(11, 12))
	stores := []*blockStore{small, huge}
	open := make([]*opened, len(stores))
	prompts := make([][]kv.Prompt, len(stores))
	for i, b := range stores {
		if open[i], err = b.open(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, open[i].Close()) }()
		for range min(hitPool, b.whole()) {
			prompts[i] = append(prompts[i], b.prompt(random.IntN(b.whole())))
		}
	}
	defer quiet()()
	var p50, p99 [2][]float64
	for round := -1; round < r.size.rounds; round++ {
		var times [2][]float64
		for range r.size.matches {
			for i := range stores {
				p := prompts[i][random.IntN(len(prompts[i]))]
				start := time.Now()
				x, err := open[i].model.Match(ctx, p, db.MatchOptions{})
				times[i] = append(times[i], time.Since(start).Seconds())
				if err != nil {
					return err
				}
				if err := want(x, len(p.Tokens)); err != nil {
					return err
				}
			}
		}
		for i := range stores {
			if round >= 0 { // the first brings the pages into memory
				p50[i], p99[i] = append(p50[i], percentile(times[i], 0.5)), append(p99[i], percentile(times[i], 0.99))
			}
		}
	}
	r.emit(figure{name: "match_1e7_p99", unit: "us", values: micros(p99[1]), ratios: quotients(p99[1], p99[0]), bar: atMost(3),
		reference: fmt.Sprintf("%d tokens, %d blocks, of %d stored prompts in random order, warm%s; beside the same in a store of %s blocks, in turn with it, P99 %s us; P50 %s us, "+
			"there %s us", manyTokens, manyTokens/blockTokens, len(prompts[1]), r.size.smaller(named, huge.blocks), count(small.blocks),
			number(median(micros(p99[0]))), number(median(micros(p50[1]))), number(median(micros(p50[0]))))})
	return nil
}
