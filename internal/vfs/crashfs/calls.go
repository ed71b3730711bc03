package crashfs

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// Op is one call of a [Disk] or of one of its files.
type Op struct {
	N      int    // calls before it
	Change int    // changes before it
	Kind   string // the method, in small letters: create, open, rename, remove, mkdir, list, stat, syncdir, space, read, write, sync, truncate, allocate, punch, map, close
	Name   string // relative to the disk's directory
	Len    int    // bytes of a read or a write
}

// Changes reports whether the call changes what is on the disk, or what of it is durable.
func (o Op) Changes() bool { return changing[o.Kind] }

var changing = map[string]bool{
	"create": true, "rename": true, "remove": true, "mkdir": true, "syncdir": true,
	"write": true, "sync": true, "truncate": true, "allocate": true, "punch": true,
}

// Short is an error for [Disk.Before]: a read or a write does so many bytes and then fails with Err. Other calls do
// nothing.
type Short struct {
	Bytes int
	Err   error
}

func (e *Short) Error() string { return fmt.Sprintf("after %d bytes: %v", e.Bytes, e.Err) }
func (e *Short) Unwrap() error { return e.Err }

// Late is an error for [Disk.Before]: the call is done, and then fails with Err. Of a sync, it is not known what of it
// was done.
type Late struct{ Err error }

func (e *Late) Error() string { return fmt.Sprintf("after it was done: %v", e.Err) }
func (e *Late) Unwrap() error { return e.Err }

// Before sets a hook that is asked before every call and whose error is the call's: nothing is done then, unless the
// error is a [*Short] or a [*Late]. Nil: no hook.
func (d *Disk) Before(hook func(Op) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before = hook
}

// UnderWay is how many calls have begun and not ended: those that wait in a hook are among them.
func (d *Disk) UnderWay() int { return int(d.underWay.Load()) }

// call counts a call, lets it fail if it is to, and else runs do under mu. Errors are wrapped with the name.
func (d *Disk) call(kind, name string, n int, do func(rel string) error) error {
	rel, err := d.rel(kind, name)
	if err != nil {
		return err
	}
	hook, op, err := d.enter(kind, rel, n)
	if err != nil {
		return &fs.PathError{Op: kind, Path: name, Err: err}
	}
	d.underWay.Add(1)
	defer d.underWay.Add(-1)
	var failed error
	if hook != nil {
		failed = hook(op)
	}
	var late *Late
	if failed != nil && !errors.As(failed, &late) {
		return wrapped(kind, name, failed)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.crashed {
		return &fs.PathError{Op: kind, Path: name, Err: ErrCrashed}
	}
	if d.volume.gone {
		return &fs.PathError{Op: kind, Path: name, Err: errGone}
	}
	if err := do(rel); err != nil {
		return wrapped(kind, name, err)
	}
	return wrapped(kind, name, failed)
}

func (d *Disk) enter(kind, rel string, n int) (func(Op) error, Op, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	op := Op{N: d.ops, Change: d.changes, Kind: kind, Name: rel, Len: n}
	if op.Changes() && d.changes == d.crashAt {
		d.crash()
	}
	if d.crashed {
		return nil, op, ErrCrashed
	}
	if d.volume.gone {
		return nil, op, errGone
	}
	if op.Changes() || d.isOutside(rel) {
		d.look()
	}
	if op.Changes() {
		d.settle() // whoever wrote past the disk goes on with this: he is done
	}
	d.ops++
	if op.Changes() {
		d.changes++
	}
	return d.before, op, nil
}

// wrapped names the file, as the operating system's errors do.
func wrapped(kind, name string, err error) error {
	if err == nil {
		return nil
	}
	var p *fs.PathError
	if !errors.As(err, &p) {
		err = &fs.PathError{Op: kind, Path: name, Err: err}
	}
	if isNoSpace(err) && !errors.Is(err, vfs.ErrNoSpace) {
		err = fmt.Errorf("%w: %w", vfs.ErrNoSpace, err)
	}
	return err
}

// ErrCrashed is what every call returns from the crash on.
var ErrCrashed = errors.New("the disk has crashed")

// Ops returns how many calls there were, and how many of them changed something.
func (d *Disk) Ops() (all, changes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ops, d.changes
}

// CrashAt lets the disk crash before change number n, counted from 0: it and all calls after it fail with [ErrCrashed].
func (d *Disk) CrashAt(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashAt = n
}

// Crash lets the disk crash now.
func (d *Disk) Crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crash()
}

func (d *Disk) crash() {
	if !d.crashed {
		d.look()
		d.crashed = true
	}
}

// Crashed reports whether the crash was.
func (d *Disk) Crashed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.crashed
}
