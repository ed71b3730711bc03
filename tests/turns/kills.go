//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// chat is what was acknowledged.
type chat struct {
	tokens []kv.Token
	turns  []step
	starts []start // of processes that got as far as a restore in a turn that they finished

	processes, kills, again int // again: turns that were saved, or partly, by a process that was killed before it said so
}

// start is a turn that began with a restore.
type start struct{ turn, history, reused int }

// death is when a process is killed: after it said a step for the nth time, and a moment later.
type death struct {
	do     string
	nth    int
	moment time.Duration
}

// talk has the whole chat: by one process that is never killed, if there is no store, else by as many as it takes.
func talk(o order, rng *rand.Rand) (*chat, error) {
	c := &chat{}
	for len(c.turns) < o.Turns {
		o.First, o.History, o.Count = len(c.turns), c.tokens, o.Turns-len(c.turns)
		var d *death
		if o.Store != "" {
			o.Count = min(o.Count, 1+rng.IntN(3))
			o.Leave, o.Unified = rng.IntN(2) == 0, rng.IntN(2) == 0
			if rng.IntN(8) > 0 {
				d = randomDeath(rng, o.Count, o.Answer)
			}
		}
		if err := c.process(o, d); err != nil {
			return c, fmt.Errorf("turn %d: %w", o.First, err)
		}
		if c.processes > 100*o.Turns {
			return c, errors.New("the chat gets nowhere")
		}
	}
	return c, nil
}

// randomDeath picks what is being done when a process dies, all with the same likelihood, though some take longer than others.
func randomDeath(rng *rand.Rand, turns, answer int) *death {
	d := &death{do: []string{"attached", "restored", "evaluated", "token", "saving", "saving", "turn"}[rng.IntN(7)], nth: 1}
	switch d.do {
	case "token":
		d.nth += rng.IntN(turns * answer)
	case "evaluated", "saving", "turn":
		d.nth += rng.IntN(turns)
	}
	d.moment = time.Duration(rng.Int64N(int64([]time.Duration{1, time.Millisecond, 4 * time.Millisecond, 30 * time.Millisecond}[rng.IntN(4)])))
	return d
}

// process starts one process, kills it when its time has come, and adds the turns that it acknowledged.
func (c *chat) process(o order, d *death) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, childFlag)
	cmd.Stderr = os.Stderr // of a process that is aborted
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer cmd.Process.Kill()
	if err := json.NewEncoder(in).Encode(o); err != nil {
		return err
	}
	in.Close()
	c.processes++
	killed, said, saving := false, 0, -1
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil { // its end; half a line was not said
			break
		}
		var s step
		if err := json.Unmarshal(line, &s); err != nil {
			return fmt.Errorf("the process says %q: %w", line, err)
		}
		switch {
		case s.Error != "":
			return errors.Join(errors.New(s.Error), cmd.Wait())
		case s.Do == "saving":
			saving = s.Turn
		case s.Do == "turn":
			if s.Turn != len(c.turns) {
				return fmt.Errorf("the process had turn %d, expected %d", s.Turn, len(c.turns))
			}
			if s.Reused >= 0 {
				c.starts = append(c.starts, start{s.Turn, len(c.tokens), s.Reused})
			}
			c.turns, c.tokens = append(c.turns, s), append(c.tokens, s.Tokens...)
		}
		if d != nil && !killed && s.Do == d.do {
			if said++; said == d.nth {
				time.Sleep(d.moment)
				cmd.Process.Kill() // SIGKILL: nothing is flushed, closed or checkpointed
				killed = true
			}
		}
	}
	err = cmd.Wait()
	if killed && err != nil {
		c.kills++
		if saving == len(c.turns) {
			c.again++
		}
		return nil
	}
	return err
}

// likeness is how one chat compares with another of as many turns.
type likeness struct {
	tokens, same  int // tokens of answers; those that are the same at the same place
	logits, bits  int // predictions; those of which every bit is the same
	turn, token   int // the first that differs; -1: none
	wholeAsBefore bool
}

func compare(want, got *chat, answer int) likeness {
	l := likeness{turn: -1, token: -1, wholeAsBefore: slices.Equal(want.tokens, got.tokens)}
	for i := range want.turns {
		w, g := want.turns[i], got.turns[i]
		for j := range answer {
			l.tokens, l.logits = l.tokens+1, l.logits+1
			if w.Sums[j] == g.Sums[j] {
				l.bits++
			}
			if w.Tokens[len(w.Tokens)-answer+j] == g.Tokens[len(g.Tokens)-answer+j] {
				l.same++
			} else if l.turn < 0 {
				l.turn, l.token = i, j
			}
		}
	}
	return l
}

// lost are turns that began with less than all that was acknowledged, but for the end that Align leaves to be evaluated again.
func (c *chat) lost(batch int) (out []start) {
	for _, s := range c.starts {
		if s.reused < s.history/batch*batch {
			out = append(out, s)
		}
	}
	return out
}
