package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// childFlag, as the only argument, makes this program do one job that comes through a pipe.
const childFlag = "-child"

// process is this program, started once more.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser // kept open: its end tells the child that the parent died
	out *json.Decoder
}

func start(ctx context.Context, j job) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self, childFlag)}
	p.cmd.Stderr = os.Stderr
	p.cmd.WaitDelay = 10 * time.Second
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(p.in).Encode(j); err != nil {
		return nil, errors.Join(err, p.cmd.Process.Kill(), p.cmd.Wait())
	}
	return p, nil
}

// runJob starts a process and lets it end by itself.
func runJob(ctx context.Context, j job) (a answer, err error) {
	p, err := start(ctx, j)
	if err != nil {
		return a, err
	}
	said := p.out.Decode(&a)
	if err := p.cmd.Wait(); err != nil {
		return a, fmt.Errorf("child process %d: %w", p.cmd.Process.Pid, err)
	}
	return a, said
}

// runAndKill starts a process and kills it as soon as it says that its prompt is saved: by SIGKILL, or what Windows has
// for it. The process has no chance to close its store, or to do anything else.
func runAndKill(ctx context.Context, j job) (a answer, how string, err error) {
	j.SaveAndDie = true
	p, err := start(ctx, j)
	if err != nil {
		return a, "", err
	}
	said := p.out.Decode(&a)
	killed := p.cmd.Process.Kill()
	p.cmd.Wait()
	state := p.cmd.ProcessState
	switch {
	case ctx.Err() != nil:
		return a, "", ctx.Err()
	case said != nil:
		return a, "", fmt.Errorf("child process %d ended before its prompt was saved: %s", state.Pid(), state)
	case killed != nil:
		return a, "", fmt.Errorf("child process %d could not be killed: %w", state.Pid(), killed)
	}
	return a, fmt.Sprintf("process %d: %s", state.Pid(), state), nil
}
