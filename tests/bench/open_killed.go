package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// openKilled are the times of opening a store whose process was killed when so many bytes lay behind its last checkpoint: the next process
// reads and checks them. Each Open is that of a process of its own, which ends without Close and so leaves the store as it was.
func openKilled(r *run) (err error) {
	var laps []lap
	var dirs []string
	defer func() {
		for _, dir := range dirs {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	for _, behind := range killedBehind {
		dir, err := r.folder(fmt.Sprintf("killed-%d", behind))
		if err != nil {
			return err
		}
		dirs = append(dirs, dir)
		if err := (&child{Do: childKilled, Dir: dir, Layers: r.size.layers, Behind: r.size.killed * behind}).run(); err == nil {
			return errors.New("a process that was to be killed came to its end")
		} else if _, err := os.Stat(filepath.Join(dir, "index.db")); err != nil {
			return fmt.Errorf("a process that was to be killed left no store: %w", err)
		}
		for _, cold := range []bool{false, true} {
			laps = append(laps, func() (time.Duration, error) { return openLeft(dir, cold) })
		}
	}
	times, err := interleave(2*r.size.opens, laps...)
	if err != nil {
		return err
	}
	for i, behind := range killedBehind {
		for k, what := range []string{"", "_cold"} {
			r.emit(figure{
				name: fmt.Sprintf("open_killed_%d%s", behind, what), unit: "ms", values: millis(times[2*i+k]), ratios: quotients(times[2*i+k], times[k]),
				reference: fmt.Sprintf("db.Open of a store whose process was killed with %d MiB behind its last checkpoint, files %s; beside nothing behind it",
					r.size.killed*behind>>20, []string{"in the page cache", "not in memory"}[k]),
			})
		}
	}
	return nil
}

// killedBehind are what lies behind the checkpoint, in MiB if the run is not quick: nothing, what CheckpointBytes is by default, and four
// times that.
var killedBehind = []int64{0, 64, 256}

// openLeft has a process open what another one left.
func openLeft(dir string, cold bool) (took time.Duration, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		return 0, err
	}
	if cold {
		if err := cool(paths); err != nil {
			return 0, err
		}
	} else {
		for _, path := range paths {
			if _, err := os.ReadFile(path); err != nil {
				return 0, err
			}
		}
	}
	c := child{Do: childOpen, Dir: dir}
	err = c.run()
	return c.Took, err
}

// killed is the process that puts, and is killed.
func (c *child) killed() error {
	desc := descriptor(c.Layers, kv.F16)
	src := newKVCache(desc, killedBlocks*blockTokens).fill()
	s, err := openStore(c.Dir, desc, options())
	if err != nil {
		return err
	}
	for i, behind := 0, int64(-1); ; i++ {
		got, err := s.put(kv.Prompt{Tokens: tokens(i+1, killedBlocks*blockTokens)}, src.rows(killedBlocks*blockTokens))
		if err != nil {
			return err
		}
		if behind < 0 { // so that there is an index
			behind, err = 0, s.Checkpoint(ctx)
		} else {
			behind += got.Bytes
		}
		if err != nil {
			return err
		}
		if behind >= c.Behind {
			self, err := os.FindProcess(os.Getpid())
			if err != nil {
				return err
			}
			return errors.Join(self.Kill(), errors.New("it is not dead"))
		}
	}
}

// killedBlocks is how many blocks each of its prompts has.
const killedBlocks = 8

// open is the process that only opens.
func (c *child) open() (err error) {
	c.Took, err = since(func() error { _, err := db.Open(ctx, c.Dir, options()); return err })
	return err
}
