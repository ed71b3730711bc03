package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	if isChild() {
		return
	}
	if err := command(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func command() (err error) {
	quick := flag.Bool("quick", false, "smaller and fewer: two to three minutes")
	asJSON := flag.Bool("json", false, "print one JSON object a line, for machines")
	only := flag.String("only", "", "comma-separated `names` of figures; default: all")
	long := flag.Bool("long", false, "also what takes one to two hours: a store of 10,000,000 blocks, 55 GB of disk (21 GB where the file system compresses)")
	dir := flag.String("dir", "", "`folder` for the stores; large ones stay there, for the next run; default: a temporary one")
	cost := flag.String("cost", "", "measure what prompts cost, of the models that -only names (270M,1B,3B,8B,recompute), and add it to this `file`")
	draw := flag.String("draw", "", "draw the charts of the file of -cost into this `folder`; with -only draw, measure nothing")
	flag.Parse()
	var stop context.CancelFunc
	ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM) // what was made is to be removed
	defer stop()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected arguments: %v", flag.Args())
	}
	r := &run{size: fullSize, log: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }}
	if *quick && *long {
		return errors.New("-quick and -long: one of them")
	}
	if *quick {
		r.size = quickSize
	}
	r.long = *long
	if *only != "" {
		r.only = strings.Split(*only, ",")
	}
	if *dir != "" {
		if err := os.MkdirAll(*dir, 0o700); err != nil {
			return err
		}
		r.keep = true
		r.dir, err = filepath.Abs(*dir)
	} else {
		r.dir, err = os.MkdirTemp("", "dormouse-bench-")
		defer func() { os.RemoveAll(r.dir) }()
	}
	if err != nil {
		return err
	}
	if *cost != "" || *draw != "" {
		if *cost == "" {
			return errors.New("-draw needs -cost: the file with what was measured")
		}
		if !slices.Equal(r.only, []string{"draw"}) {
			err = r.measureCosts(*cost)
		}
		if err == nil && *draw != "" {
			err = drawCosts(*cost, *draw)
		}
		return err
	}
	before := loadAverage()
	err = r.all() // what was measured before it failed, or was interrupted, is printed
	if *asJSON {
		return errors.Join(err, r.writeJSON(os.Stdout))
	}
	return errors.Join(err, r.writeTable(os.Stdout, before, loadAverage()))
}

// run is one run of the program.
type run struct {
	size sizes
	dir  string
	keep bool     // the folder is the user's: what took long to build stays in it
	only []string // names of figures; empty: all
	long bool     // hugeNames, too
	log  func(format string, args ...any)

	figures []figure
	notes   []string
	stores  map[int]*blockStore // by number of blocks
}

// benches lists what there is to measure, in the order in which it is.
var benches = []struct {
	names []string
	run   func(*run) error
}{
	{[]string{"restore_warm"}, restoreWarm},
	{[]string{"restore_warm_dense"}, restoreDense},
	{[]string{"restore_warm_unverified"}, restoreUnverified},
	{[]string{"restore_warm_q8_passthrough"}, restorePassthrough},
	{[]string{restoreColdName, restoreFresh, restoreLayer}, restoreColds},
	{[]string{"restore_p99_beside_sleep", "restore_p99_beside_count", "restore_p99_during_put", "restore_p99_during_checkpoint", "restore_p99_during_compact", "restore_p99_during_evict", "restore_p99_during_delete"}, restoreBusy},
	{[]string{"put"}, putProcess},
	{[]string{cpuRestore, cpuPut}, cpuTimes},
	{[]string{"put_sync"}, putSync},
	{[]string{"put_power"}, putPower},
	{[]string{"put_p999_at_budget", "put_p999_during_delete"}, putStalls},
	{[]string{"evict_many", "evict_many_shared", "delete_many", "delete_many_shared", "evict_long", "delete_long"}, manyGo},
	{[]string{"match_hit_p50", "match_hit_p99", "match_miss"}, matchTimes},
	{[]string{"bloom_lookup"}, bloomLookup},
	{[]string{"bloom_rebuild_8192"}, bloomRebuild},
	{[]string{"bloom_fpr"}, bloomRate},
	{[]string{"open_1e4", "open_1e5", "open_1e6"}, openTimes},
	{[]string{"open_killed_0", "open_killed_0_cold", "open_killed_64", "open_killed_64_cold", "open_killed_256", "open_killed_256_cold"}, openKilled},
	{[]string{"open_1e6_after_checkpoints", "open_1e6_after_evictions", "open_1e6_after_compaction"}, openPasts},
	{[]string{"open_10_models", "open_1000_models"}, openModels},
	{footprintNames("1e6"), openFootprints},
	{hugeNames, hugeTimes},
	{[]string{restoreOwn, restoreMapped}, restoreMemory},
	{[]string{"pressure_moderate", "pressure_low", "pressure_critical"}, pressures},
	{[]string{"ttft_ratio"}, firstToken},
	{[]string{"allocs_restored_block"}, restoreAllocs},
	{[]string{"allocs_match"}, matchAllocs},
}

// hugeNames are the figures of a store of ten million blocks.
var hugeNames = append([]string{"open_1e7", "match_1e7_p99"}, footprintNames("1e7")...)

// names are the names of all figures.
func names() []string {
	var all []string
	for _, b := range benches {
		all = append(all, b.names...)
	}
	return all
}

// all runs what was asked for.
func (r *run) all() error {
	known := names()
	for _, name := range r.only {
		if !slices.Contains(known, name) {
			return fmt.Errorf("no figure %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	for _, name := range r.only {
		if slices.Contains(hugeNames, name) && !r.long {
			return fmt.Errorf("%s builds a store of %s blocks, which takes an hour: add -long", name, count(r.size.huge))
		}
	}
	r.stores = map[int]*blockStore{}
	for _, b := range benches {
		if !slices.ContainsFunc(b.names, r.wants) {
			continue
		}
		if err := r.timed(b.names[0], func() error { return b.run(r) }); err != nil {
			return fmt.Errorf("%s: %w", b.names[0], err)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(r.stores)) {
		if s := r.stores[n]; !r.keep {
			if err := os.RemoveAll(s.dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// wants reports whether a figure was asked for.
func (r *run) wants(name string) bool {
	if len(r.only) == 0 {
		return r.long || !slices.Contains(hugeNames, name)
	}
	return slices.Contains(r.only, name)
}

// skip says loudly that a figure is missing, and why.
func (r *run) skip(name, format string, args ...any) {
	text := fmt.Sprintf("SKIPPED %s: %s", name, fmt.Sprintf(format, args...))
	r.notes = append(r.notes, text)
	r.log("%s", text)
}

// folder makes a new folder for one figure; remove it when done.
func (r *run) folder(name string) (string, error) { return os.MkdirTemp(r.dir, name+"-") }
