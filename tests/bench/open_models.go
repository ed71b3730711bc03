package main

import (
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// openModels are the times of opening stores of no blocks, with few and with many models of 128 tensors.
func openModels(r *run) error {
	counts := []int{10, r.size.models}
	var laps []lap
	for _, n := range counts {
		dir, err := r.folder("models")
		if err != nil {
			return err
		}
		if err := registerModels(dir, n); err != nil {
			return err
		}
		laps = append(laps, func() (took time.Duration, err error) {
			var s *db.Store
			took, err = since(func() (err error) { s, err = db.Open(ctx, dir, options()); return err })
			if err != nil {
				return 0, err
			}
			return took, s.Close()
		})
	}
	times, err := interleave(r.size.opens, laps...)
	if err != nil {
		return err
	}
	const what = "db.Open of a store of models of 128 tensors, without blocks, closed cleanly, its files in the page cache"
	r.emit(figure{name: "open_10_models", unit: "ms", values: millis(times[0]), reference: what})
	r.emit(figure{name: "open_1000_models", unit: "ms", values: millis(times[1]), ratios: quotients(times[1], times[0]), bar: atMost(2),
		reference: fmt.Sprintf("%s (%d models); beside open_10_models", what, r.size.models)})
	return nil
}

func registerModels(dir string, n int) error {
	s, err := db.Open(ctx, dir, options())
	if err != nil {
		return err
	}
	d := descriptor(64, kv.F16)
	for i := range n {
		d.Name = fmt.Sprint("model ", i)
		d.Weights = kv.HashOf(d.Name)
		if _, err := s.Register(ctx, d); err != nil {
			s.Close()
			return err
		}
	}
	return s.Close()
}
