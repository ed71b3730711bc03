package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"time"
)

// orderEnv carries an order to the process that does it: this program, started anew.
const orderEnv = "DORMOUSE_CRASH_ORDER"

// order is what a process of this program does instead of starting others.
type order struct {
	Work  *workOrder  `json:",omitempty"`
	Check *checkOrder `json:",omitempty"`
	Disk  *diskOrder  `json:",omitempty"`
	Back  *backOrder  `json:",omitempty"`
}

// ordered does what the environment orders, if anything, and never returns then.
func ordered() {
	text := os.Getenv(orderEnv)
	if text == "" {
		return
	}
	signal.Ignore(os.Interrupt) // a terminal sends it to all: the first process ends the others
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
		os.Exit(2)
	}
	switch {
	case o.Work != nil:
		work(*o.Work, os.Stdout)
	case o.Check != nil:
		check(*o.Check, os.Stdin, os.Stdout)
	case o.Back != nil:
		writeBack(*o.Back)
	case o.Disk != nil:
		if err := serveDisk(*o.Disk); err != nil {
			fmt.Fprintln(os.Stderr, "crash: disk:", err)
			os.Exit(1)
		}
	}
	os.Exit(0)
}

// stead is what is started in place of this program: a command and its arguments, which lead to a build of it for another processor.
var stead []string

// again is this program, with an order.
func again(o order) (*exec.Cmd, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	if len(stead) > 0 {
		cmd = exec.Command(stead[0], stead[1:]...)
	}
	cmd.Env = append(os.Environ(), orderEnv+"="+string(text))
	return cmd, nil
}

// child is a process that works a store until it is ended. It writes its journal, a line for each beginning and each end
// of an operation, to a pipe that is read while it runs: what is in the pipe when it dies is not lost.
type child struct {
	cmd     *exec.Cmd
	stderr  bytes.Buffer
	opening chan struct{} // closed when it begins to open the store
	ready   chan struct{} // closed when the store is open
	ended   chan struct{} // closed when the journal has ended
	target  int           // lines of journal
	reached chan struct{} // closed when there are so many

	once  sync.Once
	lines []string // guarded by ended
	state string   // guarded by ended: how far it came
}

// startChild starts a process that works the store as ordered, and tells when it has written so many lines.
func startChild(o workOrder, target int) (*child, error) {
	cmd, err := again(order{Work: &o})
	if err != nil {
		return nil, err
	}
	c := &child{
		cmd: cmd, opening: make(chan struct{}), ready: make(chan struct{}), ended: make(chan struct{}), target: target,
		reached: make(chan struct{}),
	}
	cmd.Stderr = &c.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go c.read(out)
	return c, nil
}

// read collects the journal. A line that the child's death cut off was not written: an operation begins after its line.
func (c *child) read(out io.Reader) {
	defer close(c.ended)
	in := bufio.NewReaderSize(out, 1<<16)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = line[:len(line)-1]
		switch line {
		case lineOpening:
			c.state = line
			close(c.opening)
		case lineReady:
			c.state = line
			close(c.ready)
		default:
			c.lines = append(c.lines, line)
			if len(c.lines) == c.target {
				close(c.reached)
			}
		}
	}
}

// Kill ends the child with SIGKILL, if it lives, and waits until it is dead and its journal read.
func (c *child) Kill() error {
	var err error
	c.once.Do(func() {
		if err = c.cmd.Process.Kill(); errors.Is(err, os.ErrProcessDone) {
			err = nil
		}
		select {
		case <-c.ended:
		case <-time.After(30 * time.Second):
			err = errors.New("the child does not die")
			return
		}
		c.cmd.Wait() // says that it was killed
	})
	return err
}

// Ended is closed when the child has ended, by itself or not, and its journal is read.
func (c *child) Ended() <-chan struct{} { return c.ended }

// Ready is closed when the child has opened the store and begins to work.
func (c *child) Ready() <-chan struct{} { return c.ready }

// Lines is the journal. Only after Kill.
func (c *child) Lines() []string { return c.lines }

// stacks has the child print what its goroutines do, and waits a little for that.
func (c *child) stacks() {
	quit(c.cmd.Process)
	select {
	case <-c.ended:
	case <-time.After(5 * time.Second):
	}
}
