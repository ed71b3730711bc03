package journals

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/sessions"
)

// Errors that db exports under the same names, where they are explained.
var (
	ErrOpen   = errors.New("the scope's session is open already")
	ErrClosed = errors.New("session is closed")
	ErrStale  = errors.New("the session was changed by another process")
)

// Options say where the files are.
type Options struct {
	FS       vfs.FS
	Dir      string // of the store
	UUID     kv.UUID
	Poisoned func(error) // is told of an fsync that failed
	Seq      *atomic.Uint64
	Logger   *slog.Logger
}

// Open are the sessions that are open. They stay open while the store is suspended, or opened anew on a rebuilt index.
type Open map[kv.ScopeID]*Journal

// Set are the session files of a store. It is safe for concurrent use.
type Set struct {
	o     Options
	files sessions.Options

	mu   lock.Mutex[lock.Sessions]
	open Open // guarded by mu

	counted atomic.Bool
	bytes   atomic.Int64 // of this store's files, once counted: the budget's
}

// Journal is an open session. Its file is let go of by Suspend, and opened again when it is next used.
type Journal struct {
	ID    kv.ScopeID
	f     *sessions.File // guarded by Set.mu; nil while the file is let go of
	stamp sessions.Stamp // guarded by Set.mu: of the file when it was let go of
	end   error          // guarded by Set.mu: what every use returns
}

// New returns the session files of a store, of which those in open are open already.
func New(o Options, open Open) *Set {
	s := &Set{o: o, open: open}
	s.files = sessions.Options{
		FS: o.FS, Dir: s.dir(), UUID: o.UUID, Poisoned: o.Poisoned, Logger: o.Logger,
		Grew: func(n int64) { s.bytes.Add(n) },
	}
	return s
}

func (s *Set) dir() string { return filepath.Join(s.o.Dir, folder.SessionsDir) }

// Open opens a scope's session, or makes it.
func (s *Set) Open(id kv.ScopeID) (*Journal, error) {
	s.Count()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id] != nil {
		return nil, ErrOpen
	}
	f, err := s.openOrMake(id)
	if err != nil {
		return nil, err
	}
	x := &Journal{ID: id, f: f}
	s.open[id] = x
	return x, nil
}

// openOrMake opens a scope's file, or makes it. The caller holds mu.
func (s *Set) openOrMake(id kv.ScopeID) (*sessions.File, error) {
	f, err := sessions.Open(s.files, id)
	if errors.Is(err, fs.ErrNotExist) {
		return s.make(id)
	}
	if err == nil { // who made it, or wrote it anew, may not have come to sync its name
		if err = errors.Join(s.o.FS.SyncDir(s.o.Dir), sessions.SyncNames(s.files)); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, err
}

// make makes a scope's file with some frames. The caller holds mu.
func (s *Set) make(id kv.ScopeID, frames ...sessions.Frame) (*sessions.File, error) {
	names, err := s.o.FS.List(s.o.Dir)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(names, folder.SessionsDir) {
		if err := s.o.FS.Mkdir(s.dir()); err != nil {
			return nil, err
		}
	}
	if err := s.o.FS.SyncDir(s.o.Dir); err != nil {
		return nil, err
	}
	return sessions.Create(s.files, id, s.o.Seq.Add(1), frames...)
}

// Copy makes a session of what another store has.
func (s *Set) Copy(id kv.ScopeID, frames []sessions.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.make(id, frames...)
	if err != nil {
		return err
	}
	return f.Close()
}

// File is that of an open session. After a Suspend, or a rebuild of the index, it is opened again, if it is what it was.
func (s *Set) File(x *Journal) (*sessions.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.end != nil || x.f != nil {
		return x.f, x.end
	}
	f, err := sessions.Open(s.files, x.ID)
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

// Replace puts frames in the place of all that a file has. Nobody opens, lists or removes sessions meanwhile.
func (s *Set) Replace(f *sessions.File, frames []sessions.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.Replace(frames)
}

// Error is an error of package sessions as users are to see it.
func Error(err error) error {
	switch {
	case errors.Is(err, sessions.ErrDeleted):
		return fmt.Errorf("%w: %w", commit.ErrNotFound, err)
	case errors.Is(err, sessions.ErrClosed):
		return ErrClosed
	}
	return err
}

// Frames reads all frames of an open session.
func (s *Set) Frames(x *Journal) ([]sessions.Frame, error) {
	f, err := s.File(x)
	if err != nil {
		return nil, err
	}
	frames, err := f.Frames()
	return frames, Error(err)
}

// Err is what keeps an open session from being used.
func (s *Set) Err(x *Journal) error {
	_, err := s.File(x)
	return err
}

// Length is the length of an open session's file.
func (s *Set) Length(x *Journal) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.f == nil {
		return x.stamp.Size
	}
	return x.f.Bytes()
}

// Close ends a session. Of one that is closed it does nothing.
func (s *Set) Close(x *Journal) error {
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
	x.end = ErrClosed
	return err
}

// LetGo closes the files of all open sessions, which stay open themselves.
func (s *Set) LetGo() error {
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

// Sync makes durable what was appended to open sessions.
func (s *Set) Sync() error {
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
