package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// plan is what a run does.
type plan struct {
	loops int // how often a child is cut off
	lives int // of one store
	seed  uint64
	dir   string
	span  time.Duration // the longest time that a child works
	lines int           // of journal, the most that it writes before
	// newCutter makes what cuts the children of one store off; its files go into the folder of that name below dir.
	newCutter func(dir, name string) (cutter, error)
	modes     func(i int, r *rand.Rand) mode
	log       func(format string, args ...any)
	every     int // loops between two lines of progress; 0: none
}

// patience is how long a process may take for what takes it a second; then it hangs.
const patience = 2 * time.Minute

// life is what one child gets to do.
type life struct {
	seed    uint64
	opening bool          // it is cut off while it opens the store
	lines   int           // else when it has written so many lines of journal
	wait    time.Duration // and then after this time
	inPlace bool          // the store is checked as it lies there; else a copy, and the next child finds what this one left
	rebuild bool          // a copy without index.db is checked, too
	bloom   bool          // and without the Bloom filter
	exit    bool          // the check leaves the store as a killed process does
	reader  bool          // it is checked read-only as well
	verify  bool          // and verified once more after that
}

func newLife(r *rand.Rand, lines int) life {
	one := func(in int) bool { return r.IntN(in) == 0 }
	l := life{seed: r.Uint64(), inPlace: one(2), rebuild: one(3), bloom: one(2), exit: one(2), reader: one(8), verify: one(3)}
	l.lines, l.wait = 1+r.IntN(lines), time.Duration(r.Int64N(int64(2*time.Millisecond)))
	switch r.IntN(12) {
	case 0:
		l.opening, l.wait = true, time.Duration(r.Int64N(int64(6*time.Millisecond)))
	case 1: // very early
		l.lines = 1
	}
	return l
}

// run does all loops, or stops at the first finding.
func (p *plan) run(ctx context.Context) (*report, error) {
	rep := &report{Seed: p.seed, Modes: map[string]int{}, dir: p.dir}
	start := time.Now()
	defer func() { rep.Seconds = time.Since(start).Seconds() }()
	for i := 0; rep.Loops < p.loops && !rep.bad() && ctx.Err() == nil; i++ {
		r := rand.New(rand.NewPCG(p.seed, uint64(i)))
		s := &subject{p: p, rep: rep, number: i, mode: p.modes(i, r), worldSeed: r.Uint64(), r: r}
		if err := s.run(ctx, start); err != nil {
			return rep, fmt.Errorf("seed %d, store %d: %w", p.seed, i, err)
		}
		rep.Stores++
	}
	return rep, nil
}

// subject is one store that is worked and cut off again and again.
type subject struct {
	p         *plan
	rep       *report
	number    int
	mode      mode
	worldSeed uint64
	r         *rand.Rand
	w         *world
	h         history
	cut       cutter
	scratch   string
}

func (s *subject) run(ctx context.Context, start time.Time) (err error) {
	s.w = newWorld(s.worldSeed, s.mode.BlockTokens)
	if s.cut, err = s.p.newCutter(s.p.dir, fmt.Sprintf("store-%d", s.number)); err != nil {
		return err
	}
	s.scratch = filepath.Join(s.p.dir, fmt.Sprintf("scratch-%d", s.number))
	defer func() {
		if s.rep.bad() || err != nil {
			return // to be looked at
		}
		err = errors.Join(s.cut.Close(), os.RemoveAll(s.scratch))
	}()
	for n := 0; n < s.p.lives && s.rep.Loops < s.p.loops && ctx.Err() == nil; n++ {
		l := newLife(s.r, s.p.lines)
		// Should the process end here, this says at what.
		note := fmt.Sprintf("seed %d, loop %d, store %d, life %d, %s, %+v\n", s.p.seed, s.rep.Loops, s.number, n, s.mode, l)
		if err := os.WriteFile(filepath.Join(s.p.dir, "now"), []byte(note), 0o600); err != nil {
			return err
		}
		if err := s.live(l); err != nil {
			return fmt.Errorf("life %d, %s: %w", n, s.mode, err)
		}
		s.rep.Loops++
		s.rep.Modes[s.mode.name()]++
		if s.rep.bad() {
			s.rep.where = strings.TrimSpace(note)
			s.rep.tail = s.h.tail(60)
			return os.WriteFile(filepath.Join(s.p.dir, "journal"), []byte(strings.Join(s.h.lines, "\n")+"\n"), 0o600)
		}
		if s.p.every > 0 && s.rep.Loops%s.p.every == 0 {
			s.p.log("%s", s.rep.progress(s.p.loops, time.Since(start)))
		}
	}
	return nil
}

// live lets a child work, cuts it off and checks what is left.
func (s *subject) live(l life) error {
	left, err := s.work(l)
	if err != nil || s.rep.bad() {
		return err
	}
	used, err := occupied(left.Dir)
	if err != nil {
		return err
	}
	if used > s.mode.Budget {
		s.rep.add(finding{Kind: findBudget, Text: fmt.Sprintf("%d bytes are allocated after the cut, of a budget of %d", used, s.mode.Budget)})
	}
	if left.Power {
		s.h.powerLost(!s.mode.Power)
	}
	steps, err := s.steps(l, left)
	if err != nil {
		return err
	}
	got, err := s.check(steps, left.Went)
	if err != nil {
		return err
	}
	s.rep.RestoresCompared += got.Restores
	s.rep.add(got.Findings...)
	if left.Note != "" && s.rep.bad() {
		s.rep.add(finding{Kind: findError, Text: "the cut: " + left.Note})
	}
	return nil
}

// work lets a child work, and cuts it off.
func (s *subject) work(l life) (left, error) {
	c, err := startChild(workOrder{Dir: s.cut.Dir(), Mode: s.mode, WorldSeed: s.worldSeed, Seed: l.seed, LastID: s.h.lastID}, l.lines)
	if err != nil {
		return left{}, err
	}
	from := c.ready
	if l.opening {
		from = c.opening
	}
	hangs := time.NewTimer(patience)
	defer hangs.Stop()
	select {
	case <-from:
		if !l.opening {
			select {
			case <-c.reached:
			case <-time.After(s.p.span):
			case <-c.ended:
			}
		}
		time.Sleep(l.wait)
	case <-c.ended:
	case <-hangs.C:
		c.stacks()
		err := c.Kill()
		s.rep.add(finding{Kind: findError, Text: "the child hangs while it opens the store:\n" + c.stderr.String()})
		return left{}, err
	}
	left, err := s.cut.Cut(c)
	if err != nil {
		return left, err
	}
	if c.state == lineOpening {
		s.rep.KillsOpening++
	}
	compared := s.h.restores
	if err := s.h.read(c.lines); err != nil {
		return left, err
	}
	s.rep.Acks += s.h.acks
	s.rep.RestoresCompared += s.h.restores - compared
	s.rep.add(s.h.findings...)
	if text := c.stderr.String(); text != "" {
		s.rep.add(finding{Kind: findError, Text: "the child says: " + text[:min(len(text), 20000)]})
	}
	return left, nil
}

// steps makes the copies that a check needs.
func (s *subject) steps(l life, left left) (steps []checkStep, err error) {
	if err := os.RemoveAll(s.scratch); err != nil {
		return nil, err
	}
	_, err = os.Stat(filepath.Join(left.Dir, "FORMAT"))
	made := err == nil // not cut off before that
	if _, err := os.Stat(left.Dir); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	before := func(name string) (string, error) { // the next step changes it
		to := filepath.Join(s.scratch, name)
		return to, copyStore(left.Dir, to)
	}
	if l.rebuild {
		dir, err := before("rebuilt")
		if err != nil {
			return nil, err
		}
		step := checkStep{What: "rebuilt without index.db", Dir: dir, Remove: []string{"index.db"}, Verify: dir, After: dir}
		if l.bloom {
			step.Remove = append(step.Remove, "bloom")
		}
		if _, err := os.Stat(filepath.Join(dir, "index.db")); err == nil {
			steps = append(steps, step)
			s.rep.Rebuilds++
		}
	}
	dir, err := before("copy")
	if err != nil {
		return nil, err
	}
	step := checkStep{What: "a copy of what was left", Dir: dir, Exit: l.exit}
	if l.inPlace {
		step.What, step.Dir, step.Budget = "as it was left", left.Dir, true
	}
	if made {
		step.Verify = dir
	}
	if !step.Exit && l.verify {
		step.After = filepath.Join(s.scratch, "after")
	}
	if l.reader && made {
		steps = append(steps, checkStep{What: "read-only", Dir: step.Dir, ReadOnly: true})
	}
	return append(steps, step), nil
}

// check has a process compare stores with the journal.
func (s *subject) check(steps []checkStep, went bool) (out checked, err error) {
	if len(steps) == 0 {
		return out, nil
	}
	want, err := json.Marshal(s.h.demand(s.w, s.mode.Small))
	if err != nil {
		return out, err
	}
	cmd, err := again(order{Check: &checkOrder{Mode: s.mode, WorldSeed: s.worldSeed, Went: went, Steps: steps}})
	if err != nil {
		return out, err
	}
	var result, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(want), &result, &stderr
	if err := cmd.Start(); err != nil {
		return out, err
	}
	hangs := time.AfterFunc(patience, func() { quit(cmd.Process) })
	err = cmd.Wait()
	if !hangs.Stop() {
		err = errors.Join(errors.New("it hung"), err)
	}
	if err == nil {
		err = json.Unmarshal(result.Bytes(), &out)
	}
	if err != nil { // a panic, most likely
		text := stderr.String()
		out.Findings = append(out.Findings, finding{Kind: findError, Text: fmt.Sprintf("the check fails: %v\n%s", err, text[:min(len(text), 20000)])})
	}
	return out, nil
}
