package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/sessions"
)

// A session's file is truth as segments and log are, and stands beside them: no frame of the log names it. It is deleted when the rows of its
// scope are.

// sessionSet is which sessions are open, and what all of them occupy.
type sessionSet struct {
	mu   lock.Mutex[lock.Sessions]
	open map[kv.ScopeID]*Session // guarded by mu

	counted atomic.Bool
	bytes   atomic.Int64 // of this store's files, once counted: the budget's
}

// Session is an open one. Its file is let go of by Suspend, and opened again when it is next used.
type Session struct {
	ID    kv.ScopeID
	f     *sessions.File // guarded by sessionSet.mu; nil while the file is let go of
	stamp sessions.Stamp // guarded by sessionSet.mu: of the file when it was let go of
	end   error          // guarded by sessionSet.mu: what every use returns
}

// SessionInfo is what a session's file says without being read as a whole.
type SessionInfo struct {
	Scope    kv.ScopeID
	Bytes    int64
	Modified time.Time
	First    sessions.Frame
	Err      error
}

// CheckSessionTemporary returns vfs.ErrForeign where a session cannot be written anew: what lies under the name that it has meanwhile is somebody else's.
func (e *Engine) CheckSessionTemporary(id kv.ScopeID) error {
	return sessions.CheckTemporary(e.sessionOptions(), id)
}

func (e *Engine) sessionOptions() sessions.Options {
	return sessions.Options{
		FS: e.FS, Dir: e.Path(folder.SessionsDir), UUID: e.Format.UUID, Poisoned: e.Segments.Poison, Logger: e.log,
		Grew: func(n int64) { e.sessions.bytes.Add(n) },
	}
}

// OpenSession opens a scope's session, or makes it.
func (e *Engine) OpenSession(ctx context.Context, id kv.ScopeID) (*Session, error) {
	if err := e.Poisoned(); err != nil {
		return nil, err
	}
	done, err := e.roomForSession(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer done()
	s := e.sessions
	e.countSessions()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id] != nil {
		return nil, ErrSessionOpen
	}
	f, err := e.openOrMake(id)
	if err != nil {
		return nil, err
	}
	x := &Session{ID: id, f: f}
	s.open[id] = x
	return x, nil
}

// openOrMake opens a scope's file, or makes it. The caller holds sessionSet.mu.
func (e *Engine) openOrMake(id kv.ScopeID) (*sessions.File, error) {
	f, err := sessions.Open(e.sessionOptions(), id)
	if errors.Is(err, fs.ErrNotExist) {
		return e.makeSession(id)
	}
	if err == nil { // who made it, or wrote it anew, may not have come to sync its name
		if err = errors.Join(e.FS.SyncDir(e.Dir), sessions.SyncNames(e.sessionOptions())); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, err
}

// makeSession makes a scope's file with some frames. The caller holds sessionSet.mu.
func (e *Engine) makeSession(id kv.ScopeID, frames ...sessions.Frame) (*sessions.File, error) {
	o := e.sessionOptions()
	names, err := e.FS.List(e.Dir)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(names, folder.SessionsDir) {
		if err := e.FS.Mkdir(o.Dir); err != nil {
			return nil, err
		}
	}
	if err := e.FS.SyncDir(e.Dir); err != nil {
		return nil, err
	}
	return sessions.Create(o, id, e.seq.Add(1), frames...)
}

// CopySession makes a session of what another store has.
func (e *Engine) CopySession(id kv.ScopeID, frames []sessions.Frame) error {
	e.sessions.mu.Lock()
	defer e.sessions.mu.Unlock()
	f, err := e.makeSession(id, frames...)
	if err != nil {
		return err
	}
	return f.Close()
}

// roomForSession takes room in the budget for so many bytes in a session's file, and evicts for it. done gives it up, when the file counts.
func (e *Engine) roomForSession(ctx context.Context, bytes int64) (done func(), err error) {
	const block = 4096 // of the file system, as most have it
	bytes = (bytes+block-1)/block*block + block
	if !e.Reserve(bytes, 0) {
		if err := e.MakeRoom(ctx, bytes, 0); err != nil {
			return nil, err
		}
	}
	return func() { e.space.giveUp(bytes, 0) }, nil
}

// file is that of an open session. After a Suspend, or a rebuild of the index, it is opened again, if it is what it was.
func (e *Engine) sessionFile(x *Session) (*sessions.File, error) {
	s := e.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.end != nil || x.f != nil {
		return x.f, x.end
	}
	f, err := sessions.Open(e.sessionOptions(), x.ID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.end = fmt.Errorf("%w: its file is gone", ErrStale)
		return nil, x.end
	case err != nil:
		return nil, err
	}
	if f.Stamp() != x.stamp {
		f.Close()
		x.end = ErrStale
		return nil, x.end
	}
	x.f = f
	return f, nil
}

// AppendSession adds a frame, as a whole or not at all.
func (e *Engine) AppendSession(ctx context.Context, x *Session, frame sessions.Frame) error {
	return e.writeSession(ctx, x, []sessions.Frame{frame}, func(f *sessions.File) error { return f.Append(frame, e.o.Power) })
}

// ReplaceSession puts these frames in the place of all that there are. It is durable when it returns.
func (e *Engine) ReplaceSession(ctx context.Context, x *Session, frames []sessions.Frame) error {
	return e.writeSession(ctx, x, frames, func(f *sessions.File) error {
		e.sessions.mu.Lock() // nobody has the old file open meanwhile
		defer e.sessions.mu.Unlock()
		return f.Replace(frames)
	})
}

func (e *Engine) writeSession(ctx context.Context, x *Session, frames []sessions.Frame, write func(*sessions.File) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.Poisoned(); err != nil {
		return err
	}
	var bytes int64
	for _, frame := range frames {
		if err := frame.Validate(); err != nil {
			return err
		}
		bytes += int64(len(frame.Body)) + 64
	}
	f, err := e.sessionFile(x)
	if err != nil {
		return err
	}
	done, err := e.roomForSession(ctx, bytes)
	if err != nil {
		return err
	}
	defer done()
	err = sessionError(e.Insist(ctx, func() error { return write(f) }))
	e.dirty.Store(true) // behind the write: the checkpoint that takes it back syncs the file after that
	return err
}

// sessionError is an error of package sessions as users are to see it.
func sessionError(err error) error {
	switch {
	case errors.Is(err, sessions.ErrDeleted):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.Is(err, sessions.ErrClosed):
		return ErrSessionClosed
	}
	return err
}

// SessionFrames reads all frames of an open session.
func (e *Engine) SessionFrames(x *Session) ([]sessions.Frame, error) {
	f, err := e.sessionFile(x)
	if err != nil {
		return nil, err
	}
	frames, err := f.Frames()
	return frames, sessionError(err)
}

// SessionErr is what keeps an open session from being used.
func (e *Engine) SessionErr(x *Session) error {
	_, err := e.sessionFile(x)
	return err
}

// SessionLength is the length of an open session's file.
func (e *Engine) SessionLength(x *Session) int64 {
	e.sessions.mu.Lock()
	defer e.sessions.mu.Unlock()
	if x.f == nil {
		return x.stamp.Size
	}
	return x.f.Bytes()
}

// CloseSession ends a session. Of one that is closed it does nothing.
func (e *Engine) CloseSession(x *Session) error {
	s := e.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[x.ID] == x {
		delete(s.open, x.ID)
	}
	var err error
	if x.f != nil {
		err = x.f.Close()
		x.stamp.Size = x.f.Bytes()
		x.f = nil
	}
	x.end = ErrSessionClosed
	return err
}

// letGoSessions closes the files of all open sessions, which stay open themselves.
func (e *Engine) letGoSessions() error {
	s := e.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, x := range s.open {
		if x.f == nil {
			continue
		}
		errs = append(errs, x.f.Close())
		if x.end == nil {
			x.end = x.f.Err() // it stays refused
		}
		x.stamp, x.f = x.f.Stamp(), nil
	}
	return errors.Join(errs...)
}

// SyncSessions makes durable what was appended to open sessions.
func (e *Engine) SyncSessions() error {
	s := e.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, x := range s.open {
		if x.f != nil {
			errs = append(errs, x.f.Sync())
		}
	}
	return errors.Join(errs...)
}
