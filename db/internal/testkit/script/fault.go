package script

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// errDisk is what fails by itself.
var errDisk = fmt.Errorf("injected: %w", syscall.EIO)

func newCall(text string) scriptCall {
	c := scriptCall{}
	for step := range strings.SplitSeq(text, " behind ") {
		c.steps = append([]string{step}, c.steps...)
	}
	return c
}

// is reports whether op is the call that is waited for.
func (c *scriptCall) is(op crashfs.Op) bool {
	kind, files, _ := strings.Cut(c.steps[c.seen], " ")
	if kind != op.Kind && (kind != "change" || !op.Changes()) || !strings.HasPrefix(op.Name+"/", files) && !strings.HasPrefix(op.Name, files) {
		return false
	}
	if c.seen < len(c.steps)-1 {
		c.seen++
		return false
	}
	return true
}

func (f *scriptFaults) add(r *scriptRun, x *scriptRule) {
	f.mu.Lock()
	f.rules = append(f.rules, x)
	f.mu.Unlock()
	r.d.Before(f.before)
}

func (f *scriptFaults) before(op crashfs.Op) error {
	f.mu.Lock()
	var met *scriptRule
	for _, x := range f.rules {
		if met == nil && (x.always || x.met == 0) && x.call.is(op) {
			if x.skip--; x.skip < 0 {
				met, x.met = x, x.met+1
			}
		}
	}
	f.mu.Unlock()
	if met == nil {
		return nil
	}
	return met.do()
}

// through ends a rule that was met: nothing waits for it any more.
func (f *scriptFaults) through(x *scriptRule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x != nil {
		x.always = false
	}
}

func (f *scriptFaults) clear(r *scriptRun) {
	r.d.Before(nil)
	f.mu.Lock()
	f.rules = nil
	f.mu.Unlock()
}

// armed reports whether something failed, or is to.
func (f *scriptFaults) armed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.rules) > 0
}

// awaited is an error if something was to fail, and nothing came to it. Where each call is to fail, that is the end of the series.
func (f *scriptFaults) awaited(r *scriptRun) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.rules {
		switch {
		case x.met > 0 || x.pending:
		case x.each && r.nth > 1:
			r.through = true
		default:
			return malformed("what was to fail never came")
		}
	}
	return nil
}

func (r *scriptRun) fail(a []string) error {
	err := map[string]error{"": errDisk, "space": vfs.ErrNoSpace, "handles": vfs.PassingErrors[0]}[a[3]]
	r.poison = true
	r.faults.add(r, r.rule(a[1], a[2], func() error { return err }))
	return nil
}

func (r *scriptRun) dieAt(a []string) error {
	d := r.d
	r.faults.add(r, r.rule(a[1], a[2], func() error { d.Crash(); return crashfs.ErrCrashed }))
	return nil
}

func (r *scriptRun) rule(call, how string, do func() error) *scriptRule {
	x := &scriptRule{call: newCall(call), always: how == " always", each: how == " each", do: do}
	if x.each {
		x.skip = r.nth - 1
	}
	return x
}

func (r *scriptRun) allow([]string) error { r.faults.clear(r); return nil }

func (r *scriptRun) room(a []string) error {
	if r.d.SetBytes(0); a[1] == "fill" {
		r.d.SetBytes(r.d.Used())
	}
	return nil
}

func (r *scriptRun) begin(call string, command func() error) error {
	if r.pending != nil {
		return malformed("another command was begun")
	}
	p := &scriptPending{dead: make(chan struct{}), ended: make(chan error, 1)}
	r.pending = p
	return r.until(call, func() { go func() { p.ended <- command() }() })
}

func (r *scriptRun) goOn(a []string) error {
	p := r.pending
	if p == nil {
		return malformed("nothing was begun")
	}
	goOn := p.goOn
	if a[1] != "" {
		return r.until(a[1], func() { close(goOn) })
	}
	r.faults.through(p.rule)
	close(goOn)
	r.pending = nil
	return <-p.ended
}

// besides is how long a call waits that a pending command makes beside the one that waits: longer than the next command takes, which may be to cut
// the power. Such a call may also be of that next command, so it does not wait for ever.
const besides = 100 * time.Millisecond

// until lets a pending command come to a call, and wait there. Other calls that it makes at the same time come to their end before the next command, but
// for those of the same kind.
func (r *scriptRun) until(call string, goOn func()) error {
	p := r.pending
	p.waits, p.goOn = make(chan struct{}), make(chan struct{})
	waits, next := p.waits, p.goOn
	var first sync.Once
	var waiting atomic.Int32
	r.faults.through(p.rule)
	p.rule = &scriptRule{call: newCall(call), pending: true, always: true, do: func() error {
		waiting.Add(1)
		defer waiting.Add(-1)
		var enough <-chan time.Time
		others := true
		first.Do(func() { others = false; close(waits) })
		if others {
			enough = time.After(besides)
		}
		select {
		case <-next:
			return nil
		case <-enough:
			return nil
		case <-p.dead:
			return crashfs.ErrCrashed
		}
	}}
	r.faults.add(r, p.rule)
	goOn()
	select {
	case <-waits:
		for end := time.Now().Add(5 * time.Second); r.d.UnderWay() > int(waiting.Load()) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		return nil
	case err := <-p.ended:
		r.pending = nil
		return errors.Join(malformed("it did not come there"), err)
	}
}
