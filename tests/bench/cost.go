package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// shape is what of a model decides what its prompts cost.
type shape struct {
	Name, Title    string
	Layers         int
	Heads, HeadDim int     // of K and of V
	QueryDim       int     // query heads x head_dim
	Window         int     // of all layers but Full; 0: none
	Full           int     // layers that see everything
	Params         float64 // that a token of a prompt passes: without the embedding and the output
}

var shapes = []shape{
	{"270M", "Gemma 3 270M", 18, 1, 256, 4 * 256, 512, 3, 100e6},
	{"1B", "Llama 3.2 1B", 16, 8, 64, 32 * 64, 0, 16, 973e6},
	{"3B", "Llama 3.2 3B", 28, 8, 128, 24 * 128, 0, 28, 2819e6},
	{"8B", "Llama 3.1 8B", 32, 8, 128, 32 * 128, 0, 32, 6980e6},
}

// costTokens are the lengths of the prompts.
var costTokens = []int{512, 2048, 8192}

// costRates are how many MB/s a slow disk reads.
var costRates = []int{500, 1000, 2000}

func (s shape) descriptor() kv.Descriptor {
	d := descriptor(s.Layers, kv.F16)
	for i := range d.Tensors {
		d.Tensors[i].Width = s.Heads * s.HeadDim
	}
	return d
}

// tokenBytes is what a token has of f16.
func (s shape) tokenBytes() int { return 2 * 2 * s.Layers * s.Heads * s.HeadDim }

// flops are the operations of computing n tokens: two for each parameter, and for each layer the products of a query with half of the keys
// and values before it, on average.
func (s shape) flops(n int) float64 {
	seen := func(window int) float64 {
		if window == 0 || window > n {
			return float64(n) * float64(n) / 2
		}
		return float64(n-window)*float64(window) + float64(window)*float64(window)/2
	}
	return 2*s.Params*float64(n) + 4*float64(s.QueryDim)*(float64(s.Full)*seen(0)+float64(s.Layers-s.Full)*seen(s.Window))
}

// costs is what the program measured, perhaps in several calls.
type costs struct {
	Machine string
	Prompts []promptCost
	Notes   []string
}

// promptCost is what one length of one model costs, in seconds.
type promptCost struct {
	Model       string
	Tokens      int
	F16, Stored int64           // bytes
	Seconds     map[string]cost // by what is done
}

type cost struct {
	Median, Min, Max float64
	Computed         bool // from other figures
}

// What is done.
const (
	costWarm      = "warm"
	costCold      = "cold"
	costFileWarm  = "file warm"
	costFileCold  = "file cold"
	costRecompute = "recompute"
)

// slow is a cold read from a disk of that rate.
func slow(what string, rate int) string { return fmt.Sprintf("%s %g GB/s", what, float64(rate)/1000) }

// measureCosts measures the models whose names are in only, or all, and adds them to the file at path.
func (r *run) measureCosts(path string) error {
	all, err := readCosts(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, name := range r.only {
		if name != costRecompute && !slices.ContainsFunc(shapes, func(s shape) bool { return s.Name == name }) {
			return fmt.Errorf("no model %q; there are 270M, 1B, 3B and 8B, and recompute", name)
		}
	}
	if len(r.only) == 0 || slices.Contains(r.only, costRecompute) {
		if err := r.measureRecompute(&all); err != nil {
			all.note("SKIPPED %s: %v", costRecompute, err)
			r.log("SKIPPED %s: %v", costRecompute, err)
		}
	}
	for _, s := range shapes {
		if len(r.only) > 0 && !slices.Contains(r.only, s.Name) {
			continue
		}
		for _, n := range costTokens {
			err := r.timed(fmt.Sprintf("%s, %d tokens", s.Name, n), func() error { return r.costOf(s, n, &all) })
			if err != nil {
				return fmt.Errorf("%s, %d tokens: %w", s.Name, n, err)
			}
		}
	}
	all.Machine = fmt.Sprintf("%s, %d processors, kernel %s, %s/%s, %s", processorName(), runtime.NumCPU(), quant.Kernel(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	text, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func readCosts(path string) (all costs, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	return all, err
}

func (c *costs) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(c.Notes, text) {
		c.Notes = append(c.Notes, text)
	}
}

// prompt is the entry for a length of a model, made if there is none.
func (c *costs) prompt(model string, tokens int) *promptCost {
	for i := range c.Prompts {
		if p := &c.Prompts[i]; p.Model == model && p.Tokens == tokens {
			return p
		}
	}
	c.Prompts = append(c.Prompts, promptCost{Model: model, Tokens: tokens, Seconds: map[string]cost{}})
	return &c.Prompts[len(c.Prompts)-1]
}

func (p *promptCost) add(what string, seconds []float64) {
	p.Seconds[what] = cost{Median: median(seconds), Min: slices.Min(seconds), Max: slices.Max(seconds)}
}

// costOf measures one length of one model.
func (r *run) costOf(s shape, n int, all *costs) (err error) {
	desc := s.descriptor()
	st, err := r.storePrompt("cost", desc, n/blockTokens, options())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(st.dir)) }()
	if err := st.Close(); err != nil {
		return err
	}
	file := filepath.Join(st.dir, "rows.f16")
	if err := writeRows(file, st.source); err != nil {
		return err
	}
	paths, err := segmentFiles(st.dir)
	if err != nil {
		return err
	}
	sizes, err := fileSizes(paths)
	if err != nil {
		return err
	}
	p := all.prompt(s.Name, n)
	p.F16, p.Stored = st.source.bytes(), total(sizes)
	order := child{Do: childCost, Dir: st.dir, Model: s.Name, Tokens: n}
	readFile := order
	readFile.File = file
	one := func(c child, files []string, warm bool) lap {
		return func() (time.Duration, error) {
			prepare := cool
			if warm {
				prepare = warmed
			}
			if err := prepare(files); err != nil {
				return 0, err
			}
			c := c
			c.Warm = warm
			err := c.run()
			return c.Took, err
		}
	}
	names := []string{costWarm, costFileWarm}
	laps := []lap{one(order, paths, true), one(readFile, []string{file}, true)}
	why := canCool(paths)
	if why == nil {
		names = append(names, costCold, costFileCold)
		laps = append(laps, one(order, paths, false), one(readFile, []string{file}, false))
		for _, rate := range costRates {
			group, end, err := throttle(st.dir, rate)
			if err != nil {
				why = fmt.Errorf("a slow disk: %w", err)
				break
			}
			defer end()
			slowly, fileSlowly := order, readFile
			slowly.Group, fileSlowly.Group = group, group
			names = append(names, slow(costCold, rate), slow(costFileCold, rate))
			laps = append(laps, one(slowly, paths, false), one(fileSlowly, []string{file}, false))
		}
	}
	if why != nil {
		all.note("SKIPPED: not measured cold: %v", why)
		r.log("%s", all.Notes[len(all.Notes)-1])
	}
	const fast = 4
	for _, part := range []struct{ from, to, rounds int }{{0, min(fast, len(laps)), r.size.costRounds}, {min(fast, len(laps)), len(laps), 1}} {
		for i, lap := range laps[part.from:part.to] {
			var seconds []float64
			for range part.rounds {
				took, err := lap()
				if err != nil {
					return err
				}
				seconds = append(seconds, took.Seconds())
			}
			p.add(names[part.from+i], seconds)
		}
	}
	return nil
}

// cost is what a process does that has just begun: it opens a store and restores a prompt, or reads a file of its rows.
func (c *child) cost() (err error) {
	i := slices.IndexFunc(shapes, func(s shape) bool { return s.Name == c.Model })
	if i < 0 {
		return errors.New("no model " + c.Model)
	}
	desc := shapes[i].descriptor()
	prompt, dst := kv.Prompt{Tokens: tokens(1, c.Tokens)}, newKVCache(desc, c.Tokens)
	if c.Group != "" {
		if err := join(c.Group); err != nil {
			return err
		}
	}
	defer quiet()()
	once := func() (took time.Duration, err error) {
		start := time.Now()
		s, err := openStore(c.Dir, desc, options())
		if err != nil {
			return 0, err
		}
		restore := func() error { _, err := s.restore(prompt, dst.rows(c.Tokens)); return err }
		err = restore()
		took = time.Since(start)
		if c.Warm && err == nil { // a store that is open, and has been used
			took, err = since(restore)
		}
		return took, errors.Join(err, s.Close())
	}
	files := []string{c.File}
	if c.File != "" {
		once = func() (took time.Duration, err error) {
			read := func() error { return readRows(c.File, dst) }
			if c.Warm {
				if err := read(); err != nil {
					return 0, err
				}
			}
			return since(read)
		}
	} else if files, err = segmentFiles(c.Dir); err != nil {
		return err
	}
	if c.Group == "" {
		c.Took, err = once()
		return err
	}
	return c.often(files, once)
}

// slowFor is for how long something is done again and again on a slow disk. The system lets a group read for some tenths of a second without
// a limit, and then holds it back until that was made up for: what takes less time alone would see nothing of the limit.
const slowFor = 2 * time.Second

// often does it again and again, with nothing of the files in memory, and takes the mean; the first while does not count.
func (c *child) often(files []string, once func() (time.Duration, error)) error {
	n := 0
	begin := time.Now()
	for counts := false; ; n++ {
		if past := time.Since(begin); !counts && past > slowFor/4 {
			counts, n, begin = true, 0, time.Now()
		} else if counts && past > slowFor && n > 0 {
			c.Took = past / time.Duration(n)
			return nil
		}
		if err := cool(files); err != nil {
			return err
		}
		if _, err := once(); err != nil {
			return err
		}
	}
}

// writeRows writes all rows to a file as they are, readRows reads them.
func writeRows(path string, c *kvCache) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for _, mem := range c.tensors {
		if _, err := f.Write(mem); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(f.Sync(), f.Close())
}

func readRows(path string, c *kvCache) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = parallel(processors(), len(c.tensors), func(i int) error {
		_, err := f.ReadAt(c.tensors[i], int64(i)*int64(len(c.tensors[i])))
		return err
	})
	return errors.Join(err, f.Close())
}

// computed fills in what recomputing takes for the models that were not measured: as long as the measured one for its operations.
func (c *costs) computed() {
	for _, n := range costTokens {
		measured, ok := c.prompt(shapes[0].Name, n).Seconds[costRecompute]
		if !ok {
			continue
		}
		for _, s := range shapes[1:] {
			by := s.flops(n) / shapes[0].flops(n)
			c.prompt(s.Name, n).Seconds[costRecompute] = cost{Median: measured.Median * by, Min: measured.Min * by, Max: measured.Max * by, Computed: true}
		}
	}
}

// seconds writes a time with three figures at most.
func (c cost) String() string {
	text := ""
	switch v := c.Median; {
	case v < 1:
		text = number(v*1e3) + " ms"
	case v < 120:
		text = number(v) + " s"
	default:
		text = number(v/60) + " min"
	}
	if c.Computed {
		text += " (estimate)"
	}
	return strings.TrimSpace(text)
}
