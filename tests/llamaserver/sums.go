//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
)

// asked counts what clients did.
type asked struct {
	Requests  atomic.Int64
	Answered  atomic.Int64 // to the end
	Cancelled atomic.Int64 // by the client, before it had the end
}

// one sends a request. One in four leaves in the middle: while it waits for a slot, while its prompt is computed, or while it is answered.
func (a *asked) one(ctx context.Context, url string, n uint64) error {
	ask, _ := song(n%40, 6)
	body := object{"prompt": diary("Ada", n%7, 40) + ask, "n_predict": 8, "temperature": 0, "stream": n%2 == 0}
	leaves := n%4 == 1 || n%8 == 6 // streams and others
	if leaves {
		body["n_predict"] = 300
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, time.Duration(rand.IntN(400))*time.Millisecond)
		defer stop()
	}
	a.Requests.Add(1)
	_, err := must(ctx, url, body)
	switch {
	case err == nil:
		a.Answered.Add(1)
	case leaves && ctx.Err() != nil:
		a.Cancelled.Add(1)
		return nil
	}
	return err
}

// agrees compares what clients did with what the front has counted: each request once, who left is no hit, and tokens asked are those reused and computed. Of those who
// left some had left before the front heard of them, and some when all was on its way.
func (a *asked) agrees(s llamaserver.Status) error {
	t := tallyOf(s)
	total, answered, left := t.Hits+t.Slots+t.Misses+t.Passed+t.Cancelled, a.Answered.Load(), a.Cancelled.Load()
	var wrong []error
	if ended := total - t.Cancelled; total > a.Requests.Load() || ended < answered || ended > answered+left {
		wrong = append(wrong, fmt.Errorf("clients have sent %d requests, %d were answered, and %d left; the front has counted %d, %d of them cancelled", a.Requests.Load(), answered, left, total, t.Cancelled))
	}
	if t.Asked != t.Reused+t.Computed {
		wrong = append(wrong, fmt.Errorf("%d tokens were asked, %d reused, and %d computed", t.Asked, t.Reused, t.Computed))
	}
	if left > 20 && t.Cancelled == 0 {
		wrong = append(wrong, fmt.Errorf("%d clients left, and none is counted as cancelled", left))
	}
	return errors.Join(wrong...)
}

// slotFiles are how many files lie in the folder in which server and front hand them over.
func (f *front) slotFiles(ctx context.Context) (int, error) {
	dir, err := f.argument(ctx, "--slot-save-path")
	if err != nil {
		return 0, err
	}
	files, err := os.ReadDir(dir)
	return len(files), err
}

// argument is one of those that the server was started with.
func (f *front) argument(ctx context.Context, name string) (string, error) {
	s, err := f.status(ctx)
	if err != nil {
		return "", err
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.ServerPID))
	if err != nil {
		return "", err
	}
	words := strings.Split(string(line), "\x00")
	for i := len(words) - 2; i >= 0; i-- {
		if words[i] == name {
			return words[i+1], nil
		}
	}
	return "", fmt.Errorf("the server was started without %s: %q", name, words)
}
