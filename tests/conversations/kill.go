//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// kill has a process hold conversations of 40 turns, kills it at random moments, and looks at what the next one finds.
func kill(ctx context.Context, s settings, out io.Writer) error {
	if s.n == 0 {
		s.n = 200
	}
	r, err := load(s.model, false, llama.ContextOptions{})
	if err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(s.seed, 0))
	b := &book{r: r}
	conversations, kills, longest, turn := 1, 0, 0, time.Second
	for kills < s.n && ctx.Err() == nil {
		v, err := start(ctx, order{What: "kill", Model: s.model, Dir: s.newFolder("kill"), ID: fmt.Sprint("talk ", conversations)})
		if err != nil {
			return err
		}
		// One process in eight is killed while it loads and opens, the others in the turn after some that they committed: at
		// a moment of it, as long as the last one took.
		within := func(d time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(d))) }
		over := time.AfterFunc(time.Hour, func() { v.cmd.Process.Kill() })
		turns := rnd.IntN(4)
		if kills%8 == 7 {
			turns = -1
			over.Reset(within(2 * time.Second))
		}
		since := time.Now()
		err = b.follow(v, func(done int) {
			if done > 0 {
				turn = max(time.Since(since), time.Millisecond)
			}
			if since = time.Now(); done == turns {
				over.Reset(within(turn))
			}
		})
		over.Stop()
		v.kill()
		if err != nil {
			return fmt.Errorf("kill %d: %w", kills, err)
		}
		kills++
		if longest = max(longest, len(b.turns)); len(b.turns) == chatTurns {
			conversations++
			b.turns, b.unsure = nil, false
		}
	}
	fmt.Fprintf(out, "kill: %d kills over %d conversations of up to %d turns: %d openings compared, %d turns that were committed are there, lost 0, half 0; %d more were committed and not told\n",
		kills, conversations, longest, b.openings, b.committed, b.more)
	if b.committed == 0 && ctx.Err() == nil {
		return errors.New("no process committed a turn: this run shows nothing")
	}
	return ctx.Err()
}

// book is what is known of the conversation.
type book struct {
	r                         *rig
	turns                     [][]kv.Token // committed
	unsure                    bool         // a process was killed: one turn more may have been committed
	openings, committed, more int
}

// follow reads what a process says until it is killed. It calls at when the process has the conversation, with 0, and after each turn, with
// how many it committed.
func (b *book) follow(v *victim, at func(done int)) error {
	for done := 0; ; {
		var e report
		if err := v.reports.Decode(&e); err != nil {
			b.unsure = true
			return nil // killed
		}
		switch {
		case e.Opened:
			at(done)
			b.openings++
			if err := b.compare(e.Turns); err != nil {
				return err
			}
		case e.Done != nil:
			b.turns = append(b.turns, e.Done)
			b.committed++
			done++
			at(done)
			if len(b.turns) == chatTurns {
				return nil
			}
		}
	}
}

// compare wants all committed turns, at most one more, and each whole.
func (b *book) compare(there [][]kv.Token) error {
	if len(there) < len(b.turns) {
		return fmt.Errorf("%d turns are there, and %d were committed", len(there), len(b.turns))
	}
	for i, t := range there {
		if i < len(b.turns) {
			if !slices.Equal(t, b.turns[i]) {
				return fmt.Errorf("turn %d is %v, and %v was committed", i, t, b.turns[i])
			}
			continue
		}
		message := b.r.message(i)
		switch {
		case i > len(b.turns) || !b.unsure:
			return fmt.Errorf("turn %d was never committed", i)
		case len(t) != len(message)+chatAnswer || !slices.Equal(t[:len(message)], message):
			return errors.New("half a turn is there")
		}
		b.more++
		b.turns = append(b.turns, t)
	}
	b.unsure = false
	return nil
}
