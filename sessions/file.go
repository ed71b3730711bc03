package sessions

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"

	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// File is a session's file, open for writing. It is safe for concurrent use.
type File struct {
	o     Options
	scope [16]byte
	size  atomic.Int64 // end, for who waits for nobody

	mu        lock.Mutex[lock.SessionFile] // guards all below
	f         *vfs.Handle
	head      Head
	end       int64 // where the next frame goes
	durable   int64 // up to here the file is known to be
	proven    int64 // up to here its frames say so
	allocated int64
	refuse    error // what every method returns; nil: open
	failed    error // what writes return
}

// Stamp tells two states of a session's file from one another.
type Stamp struct {
	ID   [16]byte
	Size int64
}

// Create makes a scope's file, which must not be there but as one that is being deleted. It is durable when this returns.
func Create(o Options, scope [16]byte, number uint64, frames ...Frame) (*File, error) {
	o = o.withDefaults()
	path := o.Path(scope)
	if info, err := o.FS.Stat(path); err == nil {
		if !info.Regular || info.Size > 0 {
			return nil, &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
		}
		if err := o.FS.Remove(path); err != nil {
			return nil, err
		}
	}
	f := &File{o: o, scope: scope, refuse: ErrClosed}
	if err := f.write(number, frames); err != nil {
		return nil, err
	}
	if err := f.install(); err != nil {
		o.FS.Remove(f.tmp())
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Open opens a scope's file, and cuts the end that a crash tore. It reads all of it. Errors as of [Read].
func Open(o Options, scope [16]byte) (*File, error) {
	o = o.withDefaults()
	f := &File{o: o, scope: scope}
	if err := f.open(); err != nil {
		return nil, err
	}
	return f, nil
}

// open takes the file that has the name. The caller holds mu, or the only reference.
func (f *File) open() error {
	file, err := vfs.OpenHandle(f.o.FS, f.o.Path(f.scope), false, f.o.Poisoned)
	if err != nil {
		return err
	}
	defer file.Release()
	c, err := read(f.o, file, f.scope)
	if err == nil && c.Torn != "" {
		f.o.Logger.Warn("the torn end of a session was cut", "file", file.Name(), "offset", c.End, "bytes", c.Size-c.End, "why", c.Torn)
		err = file.Truncate(c.End) // if a power cut brings it back, it is as torn as before
	}
	var info vfs.Info
	if err == nil {
		info, err = file.Stat()
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	file.Again = f.stillOurs
	f.f, f.head, f.refuse, f.allocated = file, c.Head, nil, info.Allocated
	f.durable, f.proven = c.proven, c.proven
	f.setEnd(c.End)
	return nil
}

// stillOurs refuses another store's file that has come to this one's place while it was not open: somebody removed the folder, and made a store
// there. What cannot be read, or is damaged, proves nothing.
func (f *File) stillOurs(file vfs.File) error {
	b := make([]byte, headBytes)
	if _, err := file.ReadAt(b, 0); err != nil {
		return nil
	}
	if _, err := decodeHead(b, file.Name(), f.o.UUID, f.scope); errors.Is(err, vfs.ErrForeign) {
		return err
	}
	return nil
}

func (f *File) setEnd(end int64) {
	f.end = end
	f.size.Store(end)
}

// Bytes is the length of the file.
func (f *File) Bytes() int64 { return f.size.Load() }

// Stamp tells this state of the file from others.
func (f *File) Stamp() Stamp {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Stamp{ID: f.head.ID, Size: f.end}
}

// Err returns the error that every write returns since one failed; nil if none did.
func (f *File) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// Frames reads all frames.
func (f *File) Frames() ([]Frame, error) {
	c, err := f.Contents()
	return c.Frames, err
}

// Contents is [Read] of the open file.
func (f *File) Contents() (Contents, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return Contents{}, f.refuse
	}
	if err := f.f.Hold(); err != nil {
		return Contents{}, err
	}
	defer f.f.Release()
	return read(f.o, f.f, f.scope)
}

// Append adds a frame, as a whole or not at all. Where durable is set, it is on the disk when this returns. vfs.ErrNoSpace takes nothing
// away, and it may be tried again; after any other error of the disk the file refuses what writes.
func (f *File) Append(frame Frame, durable bool) error {
	if err := frame.Validate(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.writable(); err != nil {
		return err
	}
	if err := f.f.Hold(); err != nil { // nothing is written yet: it may be tried again
		return err
	}
	defer f.f.Release()
	if err := f.append(frame); err != nil {
		return err
	}
	if durable {
		if err := f.o.sync(f.f); err != nil {
			f.undo() // it was not acknowledged
			return f.fail(err)
		}
		f.durable = f.end
	}
	f.setEnd(f.end)
	return nil
}

// append writes a frame. Nothing of one that fails is left, or the file refuses what writes. The caller holds mu.
func (f *File) append(frame Frame) error {
	b := appendFrame(nil, frameSeed(f.head.ID), frameAt{kind: frame.Kind, offset: uint64(f.end), durable: uint64(f.durable)}, frame.Body)
	if _, err := f.f.WriteAt(b, f.end); err != nil {
		uerr := f.undo()
		f.count()
		if errors.Is(err, vfs.ErrNoSpace) && uerr == nil {
			return err
		}
		return f.fail(errors.Join(err, uerr))
	}
	f.end += int64(len(b))
	f.proven = max(f.proven, f.durable)
	f.count()
	return nil
}

// undo cuts what was written behind the last acknowledged frame.
func (f *File) undo() error {
	f.end = f.size.Load()
	if err := f.f.Truncate(f.end); err != nil {
		return err
	}
	return f.o.sync(f.f)
}

// count reports what the disk blocks have become more by.
func (f *File) count() {
	if info, err := f.f.Stat(); err == nil {
		f.o.Grew(info.Allocated - f.allocated)
		f.allocated = info.Allocated
	}
}

func (f *File) writable() error {
	if f.refuse != nil {
		return f.refuse
	}
	return f.failed
}

// fail makes err the answer to every later write.
func (f *File) fail(err error) error {
	f.failed = fmt.Errorf("%s: %w: %w", f.o.Path(f.scope), ErrPoisoned, err)
	f.o.Logger.Error("session refuses writes", "file", f.o.Path(f.scope), "error", err)
	return f.failed
}

// Sync makes all frames durable, and leaves a frame that says so, by which damage is told from a torn end.
func (f *File) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil // Close did it, or it is gone
	}
	return f.syncAll()
}

func (f *File) syncAll() error {
	if f.failed != nil {
		return f.failed
	}
	if f.proven >= f.end {
		return nil
	}
	if err := f.f.Hold(); err != nil {
		return err
	}
	defer f.f.Release()
	if f.durable < f.end {
		if err := f.o.sync(f.f); err != nil {
			return f.fail(err)
		}
		f.durable = f.end
	}
	if err := f.append(Frame{Kind: kindDurable}); err != nil {
		return f.failed // nil on a full disk: it does without
	}
	f.setEnd(f.end)
	f.durable, f.proven = f.end, f.end // of that frame itself nothing is lost
	return nil
}

// Replace puts a new file with these frames in the place of the old one: after a crash there is the one or the other. It is durable when
// this returns. vfs.ErrNoSpace, and vfs.ErrForeign where somebody else has the temporary name, change nothing; after any other error of the disk
// the file refuses what writes.
func (f *File) Replace(frames []Frame) error {
	for _, frame := range frames {
		if err := frame.Validate(); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.writable(); err != nil {
		return err
	}
	switch err := f.write(f.head.Number, frames); {
	case errors.Is(err, vfs.ErrNoSpace), errors.Is(err, vfs.ErrForeign), vfs.Passing(err):
		return err
	case err != nil:
		return f.fail(err)
	}
	err := f.f.Close() // where an open file cannot be replaced
	f.o.Grew(-f.allocated)
	f.allocated, f.refuse = 0, ErrClosed
	if err == nil {
		err = f.install()
	}
	if f.refuse != nil { // the old one is there still, or nothing can be opened
		f.o.FS.Remove(f.tmp())
		if oerr := f.open(); oerr != nil {
			err = errors.Join(err, oerr)
		}
		f.o.Grew(f.allocated)
	}
	if err != nil {
		return f.fail(err)
	}
	return nil
}

func (f *File) tmp() string { return f.o.Path(f.scope) + tmpSuffix }

// write writes and syncs what is to become the file, under its temporary name. A failure leaves nothing there.
func (f *File) write(number uint64, frames []Frame) (err error) {
	left, serr := f.o.FS.Stat(f.tmp())
	if err := vfs.RemoveOwn(f.o.FS, f.tmp(), f.o.ours); err != nil {
		return err
	}
	if serr == nil {
		f.o.Grew(-left.Allocated)
	}
	h := Head{UUID: f.o.UUID, Scope: f.scope, Number: number, made: headBytes}
	rand.Read(h.ID[:]) // which never fails
	for _, frame := range frames {
		h.made += uint64(frameBytes(int64(len(frame.Body))))
	}
	b := appendHead(make([]byte, 0, h.made), h)
	for _, frame := range frames {
		b = appendFrame(b, frameSeed(h.ID), frameAt{kind: frame.Kind, offset: uint64(len(b))}, frame.Body)
	}
	file, err := f.o.FS.Create(f.tmp())
	if err != nil {
		return err
	}
	if _, err = file.WriteAt(b, 0); err == nil {
		err = f.o.sync(file)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		f.o.FS.Remove(f.tmp())
	}
	return err
}

// install gives what write wrote its name, and opens it. After an error it is open if it has the name. The caller holds mu, or the only
// reference.
func (f *File) install() error {
	if err := f.o.FS.Rename(f.tmp(), f.o.Path(f.scope)); err != nil {
		return err
	}
	if err := f.open(); err != nil {
		return err
	}
	f.o.Grew(f.allocated)
	return f.o.syncDir()
}

// Doom lets go of the file, which is about to be removed: from now on every method returns ErrDeleted.
func (f *File) Doom() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse == nil {
		f.f.Close()
	}
	f.refuse = ErrDeleted
}

// Close makes all frames durable and lets go of the file. The error may be that of an earlier write.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil
	}
	err := errors.Join(f.syncAll(), f.f.Close())
	f.refuse = ErrClosed
	return err
}

// Validate refuses a kind and a length that a file cannot hold.
func (x Frame) Validate() error {
	if x.Kind == kindDurable {
		return ErrKind
	}
	if len(x.Body) > MaxBody {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(x.Body), MaxBody)
	}
	return nil
}
