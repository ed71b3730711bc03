package crashfs

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/dormousekv/dormouse/internal/vfs"
)

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
