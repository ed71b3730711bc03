//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
)

// lines reads what the user says, a line at a time, and hears Ctrl-C while it waits and while an answer is made.
type lines struct {
	out      io.Writer
	terminal bool // who types sees it: it is not shown again
	ask      chan struct{}
	read     chan string // closed at the end of the input
	ctrlC    chan os.Signal
}

func newLines(in io.Reader, out io.Writer, terminal bool) *lines {
	l := &lines{out: out, terminal: terminal, ask: make(chan struct{}), read: make(chan string), ctrlC: make(chan os.Signal, 1)}
	signal.Notify(l.ctrlC, os.Interrupt)
	go func() { // a read from a terminal cannot be broken off
		defer close(l.read)
		r := bufio.NewReader(in)
		for range l.ask {
			line, err := r.ReadString('\n')
			if err != nil && line == "" {
				return
			}
			l.read <- strings.TrimSpace(strings.ToValidUTF8(line, "\uFFFD"))
		}
	}()
	return l
}

// next is the next line; ok is false at the end of the input, and at Ctrl-C.
func (l *lines) next(prompt string) (line string, ok bool) {
	if l.terminal {
		fmt.Fprint(l.out, prompt)
	}
	select {
	case l.ask <- struct{}{}:
		select {
		case line, ok = <-l.read:
		case <-l.ctrlC:
		}
	case <-l.read: // ended before
	}
	switch {
	case l.terminal && !ok:
		fmt.Fprintln(l.out)
	case !l.terminal && ok:
		fmt.Fprintln(l.out, prompt+printable(line))
	}
	return line, ok
}

// interruptible calls f with a context that Ctrl-C ends.
func (l *lines) interruptible(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		select {
		case <-l.ctrlC:
			cancel()
		case <-done:
		}
	}()
	err := f(ctx)
	close(done)
	<-heard
	cancel()
	select {
	case <-l.ctrlC: // it was meant for what has just ended
	default:
	}
	return err
}

func (l *lines) close() {
	signal.Stop(l.ctrlC)
	close(l.ask)
}
