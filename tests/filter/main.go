package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/dormousekv/dormouse/tests/trace"
)

func main() {
	if err := command(); err != nil {
		fmt.Fprintln(os.Stderr, "filter:", err)
		os.Exit(1)
	}
}

// sizes say how much is measured.
type sizes struct {
	blocks, alone             int // of the synthetic store, and of the filters without a store
	rounds, lookups           int
	coldRounds, coldLookups   int
	conversations, syntheticN int // requests of each trace
}

var (
	fullSize  = sizes{blocks: 1_000_000, alone: 16_000_000, rounds: 14, lookups: 256, coldRounds: 5, coldLookups: 32, conversations: 1 << 30, syntheticN: 1 << 30}
	quickSize = sizes{blocks: 50_000, alone: 1_000_000, rounds: 7, lookups: 64, coldRounds: 2, coldLookups: 8, conversations: 1000, syntheticN: 1000}
)

func command() error {
	quick := flag.Bool("quick", false, "smaller and fewer: under a minute")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected arguments: %v", flag.Args())
	}
	z := fullSize
	if *quick {
		z = quickSize
	}
	dir, err := os.MkdirTemp("", "dormouse-filter-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return z.run(os.Stdout, dir)
}

// run measures everything.
func (z sizes) run(w io.Writer, dir string) error {
	conversations, err := trace.Load()
	if err != nil {
		return err
	}
	built, err := trace.LoadSynthetic()
	if err != nil {
		return err
	}
	for _, make := range []func() (*load, error){
		func() (*load, error) {
			return recorded("conversation", dir, conversations[:min(len(conversations), z.conversations)])
		},
		func() (*load, error) { return recorded("built", dir, built[:min(len(built), z.syntheticN)]) },
		func() (*load, error) { return synthetic(dir, z.blocks) },
	} {
		l, err := make()
		if err != nil {
			return err
		}
		if err := z.measure(w, dir, l); err != nil {
			return err
		}
		if err := l.ix.Close(); err != nil {
			return err
		}
	}
	bytes, absent, search := alone(z.alone, z.rounds, oneLevel, twoLevels, seedLevels)
	return writeAlone(w, fmt.Sprintf("filters alone, %d blocks", z.alone), []string{"one level", "two levels", "two levels of the seed's sizes"}, bytes, absent, search)
}

// measure prints the tables of one store.
func (z sizes) measure(w io.Writer, dir string, l *load) error {
	all := l.searchers()
	present, absent := l.readTimes(z.rounds)
	fmt.Fprintf(w, "%s: %d blocks, %d chunks, %d openings; an index read takes %.0f ns, of a key that is not there %.0f ns\n\n",
		l.name, len(l.keys.blocks), len(l.keys.ends), len(l.keys.openings), present, absent)
	for _, k := range l.kinds {
		results, err := l.measure(all, k, z.rounds, z.lookups, nil)
		if err != nil {
			return err
		}
		if err := writeResults(w, fmt.Sprintf("%s, stored: %s", l.name, k.name), all, results); err != nil {
			return err
		}
	}
	rest := sweep()
	for _, k := range l.kinds {
		results, err := l.measure(all, k, z.coldRounds, z.coldLookups, rest)
		if err != nil {
			return err
		}
		if err := writeResults(w, fmt.Sprintf("%s, cold, stored: %s", l.name, k.name), all, results); err != nil {
			return err
		}
	}
	millis, bytes, err := fileTimes(dir, all, z.rounds)
	if err != nil {
		return err
	}
	return writeFiles(w, l.name+", files, in the page cache", all, millis, bytes)
}
