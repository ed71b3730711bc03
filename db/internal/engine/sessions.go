package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/sessions"
)

// A session's file is truth as segments and log are, and stands beside them: no frame of the log names it, but one that removes it. That
// frame comes first; the file is destroyed with other dead things (reclaim), and until then every checkpoint repeats the frame behind the
// head of the new log file.

// sessionSet is which sessions are open, and what all of them occupy.
type sessionSet struct {
	mu   lock.Mutex[lock.Sessions]
	open map[kv.ScopeID]*Session // guarded by mu
	sure map[kv.ScopeID]bool     // guarded by mu: this process has removed the file that is there

	distrusted   sync.Map // of scopes: an fsync has failed, so their files are written anew before they are used again
	counted      atomic.Bool
	files, bytes atomic.Int64 // of this store, once counted
}

func newSessionSet() *sessionSet {
	return &sessionSet{open: map[kv.ScopeID]*Session{}, sure: map[kv.ScopeID]bool{}}
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

func (e *Engine) sessionOptions(id kv.ScopeID) sessions.Options {
	return vfs.On(e.FS, sessions.Options{
		Dir: e.Path(folder.SessionsDir), UUID: e.Format.UUID, Logger: e.log,
		Poisoned: func() {
			e.sessions.distrusted.Store(id, true)
			e.markUnsynced()
		},
		Grew: func(n int64) { e.sessions.bytes.Add(n) },
	})
}

// AdoptSessions takes over the open sessions of the engine before this one, which has let go of their files.
func (e *Engine) AdoptSessions(old *Engine) {
	e.sessions.open = old.sessions.open
	old.sessions.distrusted.Range(func(id, _ any) bool {
		e.sessions.distrusted.Store(id, true)
		return true
	})
}

// OpenSession opens a scope's session, or makes it.
func (e *Engine) OpenSession(ctx context.Context, id kv.ScopeID) (*Session, error) {
	if err := e.Poisoned(); err != nil {
		return nil, err
	}
	if _, doomed := e.Catalog.DoomedSessions()[id]; doomed { // it waits to be destroyed, and would go with the old one
		if err := e.reclaim(ctx); err != nil {
			return nil, err
		}
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
	if _, doomed := e.Catalog.DoomedSessions()[id]; doomed {
		return nil, fmt.Errorf("%s: %w", e.sessionOptions(id).Path(id), ErrNotDestroyed)
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
	f, err := e.openSessionFile(id)
	if errors.Is(err, fs.ErrNotExist) {
		return e.makeSession(id)
	}
	return f, err
}

// makeSession makes a scope's file with some frames. The caller holds sessionSet.mu.
func (e *Engine) makeSession(id kv.ScopeID, frames ...sessions.Frame) (*sessions.File, error) {
	o := e.sessionOptions(id)
	names, err := e.FS.List(e.Dir)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(names, folder.SessionsDir) {
		if err := e.FS.Mkdir(o.Dir); err != nil {
			return nil, err
		}
		if err := e.FS.SyncDir(e.Dir); err != nil {
			return nil, err
		}
	}
	f, err := sessions.Create(o, id, e.seq.Add(1), frames...)
	if err != nil {
		return nil, err
	}
	e.sessions.files.Add(1)
	return f, nil
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

// openSessionFile opens a scope's file. One that an fsync has failed on is written anew: memory may hold pages for clean that the disk never
// got.
func (e *Engine) openSessionFile(id kv.ScopeID) (*sessions.File, error) {
	f, err := sessions.Open(e.sessionOptions(id), id)
	if err != nil {
		return nil, err
	}
	if _, doubt := e.sessions.distrusted.Load(id); doubt {
		frames, err := f.Frames()
		if err == nil {
			err = f.Replace(frames)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		e.sessions.distrusted.Delete(id)
	}
	return f, nil
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
	f, err := e.openSessionFile(x.ID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.end = fmt.Errorf("%w: its file is gone", ErrStale)
		return nil, x.end
	case err != nil:
		return nil, err
	}
	if _, doomed := e.Catalog.DoomedSessions()[x.ID]; doomed || f.Stamp() != x.stamp {
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

// sessionNames calls do for every file that has the name of a session. The caller holds sessionSet.mu, or nobody writes.
func (e *Engine) sessionNames(do func(id kv.ScopeID, tmp bool, path string, info vfs.Info) error) error {
	dir := e.Path(folder.SessionsDir)
	names, err := e.FS.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		id, tmp, ok := sessions.Named(name)
		if !ok {
			continue
		}
		path := e.Path(folder.SessionsDir + "/" + name)
		info, err := e.FS.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = do(id, tmp, path, info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// countSessions finds out what the files occupy, once; from then on every change says so.
func (e *Engine) countSessions() {
	s := e.sessions
	if s.counted.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counted.Load() {
		return
	}
	files, bytes := e.sessionsNow()
	s.files.Add(files)
	s.bytes.Add(bytes)
	s.counted.Store(true)
}

func (e *Engine) sessionsNow() (files, bytes int64) {
	err := e.sessionNames(func(_ kv.ScopeID, tmp bool, _ string, info vfs.Info) error {
		if info.Regular && info.Size > 0 {
			bytes += info.Allocated
			if !tmp {
				files++
			}
		}
		return nil
	})
	if err != nil {
		e.log.Warn("what sessions occupy is not known", "dir", e.Dir, "error", err)
	}
	return files, bytes
}

// SessionStats is how many session files there are, and what they occupy.
func (e *Engine) SessionStats() (files, bytes int64) {
	if e.ReadOnly() {
		return e.sessionsNow()
	}
	e.countSessions()
	return e.sessions.files.Load(), e.sessions.bytes.Load()
}

// Sessions lists the session files by scope.
func (e *Engine) Sessions(ctx context.Context) (out []SessionInfo, err error) {
	s := e.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	doomed := e.Catalog.DoomedSessions()
	err = e.sessionNames(func(id kv.ScopeID, tmp bool, _ string, info vfs.Info) error {
		if err := ctx.Err(); err != nil || tmp {
			return err
		}
		h, first, err := sessions.Peek(e.sessionOptions(id), id)
		switch seq, ok := doomed[id]; {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, vfs.ErrForeign), ok && err == nil && h.Number <= seq:
			return nil
		}
		out = append(out, SessionInfo{Scope: id, Bytes: info.Size, Modified: info.Changed, First: first, Err: err})
		return nil
	})
	return out, err
}

// ReadSession reads the frames of a session's file, whether it is open or not. Of one that is damaged it returns those before the damage,
// and where that is.
func (e *Engine) ReadSession(id kv.ScopeID) ([]sessions.Frame, error) {
	c, err := e.ReadSessionFile(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("session %s: %w", id, ErrNotFound)
	}
	return c.Frames, err
}

// ReadSessionFile is ReadSession with what else there is to say.
func (e *Engine) ReadSessionFile(id kv.ScopeID) (sessions.Contents, error) {
	s := e.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	o := e.sessionOptions(id)
	if x := s.open[id]; x != nil && x.f != nil {
		return x.f.Contents()
	}
	c, err := sessions.Read(o, id)
	if seq, ok := e.Catalog.DoomedSessions()[id]; ok && c.Head.Number <= seq && !errors.Is(err, vfs.ErrForeign) {
		return sessions.Contents{}, &fs.PathError{Op: "open", Path: o.Path(id), Err: fs.ErrNotExist}
	}
	return c, err
}

// doomable looks for a scope's file that a deletion is to take, and returns its length. The caller holds sessionSet.mu.
func (e *Engine) doomable(id kv.ScopeID) (bytes int64, there bool, err error) {
	o := e.sessionOptions(id)
	for _, path := range []string{o.Path(id), o.Path(id) + ".tmp"} { // what a crash left of another file, too
		if info, err := e.FS.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return 0, false, err
		} else {
			there = true
			bytes += info.Size
		}
	}
	if !there {
		return 0, false, nil
	}
	h, _, err := sessions.Peek(o, id)
	switch {
	case errors.Is(err, vfs.ErrForeign):
		return 0, false, nil
	case errors.Is(err, vfs.ErrVersion):
		return 0, false, err
	case vfs.Passing(err):
		return 0, false, err
	}
	for seq := e.seq.Load(); seq < h.Number && !e.seq.CompareAndSwap(seq, h.Number); seq = e.seq.Load() {
	}
	return bytes, true, nil
}

// doom makes an open session's uses fail, whose file is to go. The caller holds sessionSet.mu.
func (e *Engine) doom(id kv.ScopeID) {
	s := e.sessions
	s.sure[id] = true
	if x := s.open[id]; x != nil {
		if x.f != nil {
			x.f.Doom()
		}
		x.f, x.end = nil, sessionError(sessions.ErrDeleted)
		x.stamp.Size = 0
		delete(s.open, id)
	}
}

// removeSessions removes the files that are to go. The frames that say so are durable.
func (e *Engine) removeSessions(doomed map[kv.ScopeID]uint64) error {
	if len(doomed) == 0 {
		return nil
	}
	e.countSessions()
	s := e.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, id := range slices.SortedFunc(maps.Keys(doomed), func(a, b kv.ScopeID) int { return slices.Compare(a[:], b[:]) }) {
		o := e.sessionOptions(id)
		due, err := e.dueToGo(id, doomed[id])
		if err == nil && due {
			info, serr := e.FS.Stat(o.Path(id))
			if err = sessions.Remove(o, id); err == nil && serr == nil && info.Size > 0 {
				s.files.Add(-1)
			}
		}
		if errors.Is(err, vfs.ErrPoisoned) {
			e.Segments.Poison(err)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		delete(s.sure, id)
		s.distrusted.Delete(id)
		e.Catalog.SessionGone(id)
	}
	return errors.Join(errs...)
}

// dueToGo reports whether the file that has a scope's name is the one that a deletion is about: it was made before that. One that is damaged
// does not say when it was made: it stays, unless this process has seen it when it deleted it.
func (e *Engine) dueToGo(id kv.ScopeID, seq uint64) (bool, error) {
	o := e.sessionOptions(id)
	if e.sessions.sure[id] {
		return true, nil
	}
	h, _, err := sessions.Peek(o, id)
	switch {
	case errors.Is(err, fs.ErrNotExist): // or empty, or there is only what was to become one
		return true, nil
	case errors.Is(err, vfs.ErrForeign), errors.Is(err, vfs.ErrVersion):
		return false, nil
	case errors.Is(err, damage.ErrCorrupt) && h.Number == 0:
		if head, herr := vfs.Head(e.FS, o.Path(id)); herr == nil && vfs.Blank(head[:min(16, len(head))]) {
			return true, nil // a power cut came when it was being emptied: one that was made since has a head, which is durable
		}
		e.log.Warn("a session that was being deleted is damaged and stays: delete its scope again", "file", o.Path(id), "error", err)
		return false, nil
	case err != nil && h.Number == 0:
		return false, err
	}
	return h.Number <= seq, nil
}

// settleSessions forgets the deletions that were done before this process began, or are about a file that was made anew since.
func (e *Engine) settleSessions() error {
	for id, seq := range e.Catalog.DoomedSessions() {
		o, gone := e.sessionOptions(id), true
		for _, path := range []string{o.Path(id), o.Path(id) + ".tmp"} {
			if _, err := e.FS.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				gone = false
			}
		}
		if !gone {
			due, err := e.dueToGo(id, seq)
			gone = err == nil && !due
		}
		if gone {
			e.Catalog.SessionGone(id)
		}
	}
	return nil
}

// logDoomed repeats the deletions of sessions that are not done, behind the head of a new log file. The caller holds logMu.
func (e *Engine) logDoomed() error {
	for id, seq := range e.Catalog.DoomedSessions() {
		op := oplog.Remove{Deleted: true, Seq: seq, Sessions: []kv.ScopeID{id}}
		if _, err := e.appendFrame(op.Kind(), oplog.Encode(op)); err != nil {
			return err
		}
	}
	return nil
}

// rewriteSessions writes every session's file anew, after an fsync of an earlier process that failed. One that is damaged stays.
func (e *Engine) rewriteSessions() error {
	return e.sessionNames(func(id kv.ScopeID, tmp bool, _ string, _ vfs.Info) error {
		if tmp {
			return nil
		}
		e.sessions.distrusted.Store(id, true)
		f, err := e.openSessionFile(id)
		if err == nil {
			err = f.Close()
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, damage.ErrCorrupt) || errors.Is(err, vfs.ErrForeign) || errors.Is(err, vfs.ErrVersion) {
			e.sessions.distrusted.Delete(id)
			return nil
		}
		return err
	})
}
