package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// powerCallers is how many goroutines put at a time, and share syncs.
const powerCallers = 4

// putPower is puts that survive a power cut, beside as many goroutines that write and sync the same bytes, and beside those that encode them first.
func putPower(r *run) (err error) {
	desc := descriptor(r.size.layers, kv.F16)
	src := newKVCache(desc, powerCallers*blockTokens).fill()
	dir, err := r.folder("put_power")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	o := options()
	o.Durability = db.Power
	s, err := openStore(filepath.Join(dir, "store"), desc, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var recordBytes atomic.Int64
	made := 0
	ours := func() (time.Duration, error) {
		prompts := make([]kv.Prompt, powerCallers*r.size.powerPuts)
		for i := range prompts {
			made++
			prompts[i].Tokens = tokens(made, blockTokens)
		}
		return since(func() error {
			return parallel(powerCallers, powerCallers, func(g int) error {
				rows := src.rowsAt(g*blockTokens, 0, blockTokens)
				for i := range r.size.powerPuts {
					got, err := s.put(prompts[g*r.size.powerPuts+i], rows)
					if err != nil {
						return err
					}
					recordBytes.Store(got.Bytes)
				}
				return nil
			})
		})
	}
	round := 0
	writes := func(encode bool) lap {
		return func() (took time.Duration, err error) {
			round++
			bufs := make([][]byte, powerCallers)
			files := make([]*os.File, powerCallers)
			for g := range files {
				bufs[g] = make([]byte, recordBytes.Load())
				for i := range bufs[g] {
					bufs[g][i] = byte(i)
				}
				path := filepath.Join(dir, fmt.Sprintf("written-%d-%d", round, g))
				if files[g], err = os.Create(path); err != nil {
					return 0, err
				}
				defer func() { err = errors.Join(err, files[g].Close(), os.Remove(path)) }()
			}
			return since(func() error {
				return parallel(powerCallers, powerCallers, func(g int) error {
					for i := range r.size.powerPuts {
						if encode {
							to := bufs[g][:0]
							for _, rows := range src.rowsAt(g*blockTokens, 0, blockTokens) {
								if to, _, _, err = quant.EncodeSummed(to, quant.Q8_0, quant.None, src.tensor, rows, 0); err != nil {
									return err
								}
							}
						}
						if _, err := files[g].WriteAt(bufs[g], int64(i*len(bufs[g]))); err != nil {
							return err
						}
						if err := syncData(files[g]); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
	laps, err := interleave(min(r.size.rounds, 5), ours, writes(false), writes(true))
	if err != nil {
		return err
	}
	n := float64(powerCallers * r.size.powerPuts)
	acknowledged, written, encoded := per(n, laps[0]), per(n, laps[1]), per(n, laps[2])
	r.emit(figure{
		name: "put_power", unit: "puts/s", values: acknowledged, ratios: quotients(acknowledged, written),
		reference: fmt.Sprintf("Power mode: %d goroutines put prompts of one block (%d KiB of f16), each acknowledged when it is on the disk; beside %d goroutines that each pwrite %d KiB to "+
			"a file of their own and %s: %s/s; the same goroutines, where each also encodes the block before it writes it, and no store: %s/s, of which the store has %.2fx",
			powerCallers, src.bytes()/powerCallers>>10, powerCallers, recordBytes.Load()>>10, syncDataName, number(median(written)), number(median(encoded)), median(quotients(acknowledged, encoded))),
	})
	return nil
}
