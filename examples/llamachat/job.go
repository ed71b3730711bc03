//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/quant"
)

// childFlag, as the only argument, makes this program do one job that comes through a pipe.
const childFlag = "-child"

// job is what a child process is told.
type job struct {
	Do                        string // tokens, reference, first, second
	Lib, Model, Store, Prompt string
	Codec                     quant.Codec
	Continue, Batch, Threads  int
	CacheQ8                   bool
}

// answer is what it says before it ends, or is killed.
type answer struct {
	Step                      *step  // how far it is: not the answer yet, and nothing else is set
	Error                     string // what went wrong; nothing else is set
	Mode                      string
	Reason                    string // why not more was reused
	PromptTokens, Reused      int
	TTFT, Open, Restore, Save float64  // milliseconds
	Codecs                    []string // in which the prompt's rows are stored
	RecordBytes, F16Bytes     int64    // of the prompt
	Turn                      db.Observation
	Tokens                    []int32
	Text                      string
}

// runChild starts this program once more, shows how far it is, waits for its answer, and then kills it or lets it end.
func runChild(ctx context.Context, j job, kill bool, show func(step)) (a answer, err error) {
	self, err := os.Executable()
	if err != nil {
		return a, err
	}
	cmd := exec.CommandContext(ctx, self, childFlag)
	cmd.Stderr = os.Stderr // of a process that is aborted
	in, err := cmd.StdinPipe()
	if err != nil {
		return a, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return a, err
	}
	if err := cmd.Start(); err != nil {
		return a, err
	}
	if err := json.NewEncoder(in).Encode(j); err != nil {
		return a, err
	}
	decoder := json.NewDecoder(out)
	said := decoder.Decode(&a)
	for said == nil && a.Step != nil {
		show(*a.Step)
		a = answer{}
		said = decoder.Decode(&a)
	}
	if kill && said == nil {
		cmd.Process.Kill() // SIGKILL: nothing is flushed, closed or checkpointed
	}
	in.Close()
	ended := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return a, errors.New("interrupted")
	case said != nil:
		return a, fmt.Errorf("the process %q ended without an answer: %w", j.Do, errors.Join(ended, said))
	case a.Error != "":
		return a, errors.New(a.Error)
	case kill:
		return a, nil
	}
	return a, ended
}
