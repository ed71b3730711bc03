//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// childFlag, as the only argument, makes this program a process that is to be killed.
const childFlag = "-child"

// order is what such a process does.
type order struct {
	What  string // needle, kill
	Model string
	Dir   string
	ID    string // of the conversation
}

// report is what it says: after it opened the conversation, and after each turn that was committed.
type report struct {
	Opened bool
	Turns  [][]kv.Token // that are there
	Done   []kv.Token   // a turn that was committed
	Probs  map[string]float64
}

// victim is such a process.
type victim struct {
	cmd     *exec.Cmd
	reports *json.Decoder
}

func start(ctx context.Context, o order) (*victim, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	v := &victim{cmd: exec.CommandContext(ctx, self, childFlag)}
	v.cmd.Stderr, v.cmd.WaitDelay = os.Stderr, 10*time.Second
	in, err := v.cmd.StdinPipe() // stays open until the kill
	if err != nil {
		return nil, err
	}
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	v.reports = json.NewDecoder(out)
	if err := v.cmd.Start(); err != nil {
		return nil, err
	}
	return v, json.NewEncoder(in).Encode(o)
}

// kill kills the process and waits for its end.
func (v *victim) kill() {
	v.cmd.Process.Kill()
	v.cmd.Wait()
}

func child(ctx context.Context, in io.Reader, out io.Writer) error {
	var o order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	r, err := load(o.Model, false, llama.ContextOptions{Tokens: 6144, Sequences: 32})
	if err != nil {
		return err
	}
	s, err := r.sit(ctx, o.Dir, nil)
	if err != nil {
		return err
	}
	say := json.NewEncoder(out)
	switch o.What {
	case "needle":
		err = r.bury(ctx, s, func(p map[string]float64) error { return say.Encode(report{Probs: p}) })
	case "kill":
		err = r.chatter(ctx, s, o.ID, say)
	default:
		err = fmt.Errorf("%q is nothing to do", o.What)
	}
	if err != nil {
		return err
	}
	io.Copy(io.Discard, in) // until the kill
	return errors.New("nobody killed this process")
}

const (
	chatTurns   = 40
	chatMessage = 24
	chatAnswer  = 8
)

// message is what the i-th turn of the conversation begins with.
func (r *rig) message(i int) []kv.Token {
	words := r.tokens(fmt.Sprintf("Question %d: which of the lamps along the street was lit on day %d, and who of them saw it from the boat on the river?", i, i*i))
	return words[:min(chatMessage, len(words))]
}

// chatter holds a conversation to its last turn.
func (r *rig) chatter(ctx context.Context, s *seat, id string, say *json.Encoder) error {
	c, err := s.host.Open(ctx, id, chat.Options{System: r.tokens(systemText), Ring: 600, Reserve: 32})
	if err != nil {
		return err
	}
	there := [][]kv.Token{}
	for _, t := range c.Turns() {
		there = append(there, slices.Concat(t.Message, t.Answer))
	}
	if err := say.Encode(report{Opened: true, Turns: there}); err != nil {
		return err
	}
	for i := len(there); i < chatTurns; i++ {
		if i%9 == 3 {
			if err := c.SetFact(ctx, "day", r.tokens(fmt.Sprintf("It is day %d.", i))); err != nil {
				return err
			}
		}
		t, err := c.Begin(ctx, r.message(i), chat.BeginOptions{Policy: chat.Recent(3 + i%5)})
		if err != nil {
			return err
		}
		n := 0
		for _, err := range t.Generate(ctx, chat.Greedy, nil) {
			if err != nil {
				return err
			}
			if n++; n == chatAnswer {
				break
			}
		}
		if err := t.Commit(ctx); err != nil {
			return err
		}
		if err := say.Encode(report{Done: t.Tokens()}); err != nil {
			return err
		}
	}
	return nil
}

// newFolder is one below the program's.
func (s settings) newFolder(name string) string { return filepath.Join(s.dir, name) }
