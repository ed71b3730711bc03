package db

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/lifecycle"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/segments"
)

// Store is an open store. All methods are safe for concurrent use.
type Store struct {
	dir string
	o   Options // with every zero field filled in

	kept   *engine.Kept
	beside bool // guarded by lifecycle: of a reader: a writer has the store open

	lifecycle *lifecycle.Lifecycle
	lock      *vfs.Lock      // guarded by lifecycle
	eng       *engine.Engine // guarded by lifecycle; nil when closed
	suspended bool           // guarded by lifecycle
	unsaved   error          // guarded by lifecycle: of a suspended store, why what was acknowledged before may not be durable
	gen       uint64         // guarded by lifecycle: counts the engines that were built from disk

	matches atomic.Int64               // open ones
	pressed atomic.Pointer[[]*pressed] // functions of OnPressure; a slice is never changed
	turns   turns
	// rebuilding: the index cannot be trusted. A rebuild of it is under way, or waits for the operations that are.
	rebuilding atomic.Bool
}

func (s *Store) unlock() {
	if s.lock != nil {
		s.lock.Release()
		s.lock = nil
	}
}

// Options are those that the store was opened with, every zero field filled in.
func (s *Store) Options() Options { return s.o }

// Dir is the store's directory.
func (s *Store) Dir() string { return s.dir }

// Enter is for the store's own tools and tests. It gives them the engine, as one operation of the store, until they call leave.
func (s *Store) Enter(ctx context.Context) (e *engine.Engine, leave func(), err error) {
	if e, err = s.enter(ctx); err != nil {
		return nil, nil, err
	}
	return e, s.leave, nil
}

// enter begins an operation: the engine is there until leave. While the index is rebuilt or the store resumes, it waits, or until ctx ends.
func (s *Store) enter(ctx context.Context) (*engine.Engine, error) {
	if err := s.lifecycle.Enter(ctx, false); err != nil {
		return nil, err
	}
	switch {
	case s.suspended:
		s.lifecycle.Leave()
		return nil, ErrSuspended
	case s.eng == nil:
		s.lifecycle.Leave()
		return nil, ErrClosed
	}
	return s.eng, nil
}

// enterAlways begins an operation that gives something back, though the store is suspended or closed. Without an engine there is nothing
// left to give back.
func (s *Store) enterAlways() *engine.Engine {
	s.lifecycle.Enter(context.Background(), true)
	return s.eng
}

func (s *Store) leave() { s.lifecycle.Leave() }

// Close waits for the operations under way, checkpoints and closes the store; operations that begin meanwhile get
// ErrClosed. It returns ErrLeased, and closes nothing, while a match is open. After an error of the disk the store is closed all the
// same; the next Open recovers what was acknowledged. Of a suspended store it returns the error that Suspend did.
func (s *Store) Close() error {
	if err := s.leased(); err != nil { // before other operations are kept out
		return err
	}
	s.lifecycle.Own(context.Background(), ErrClosed)
	defer s.lifecycle.Disown()
	if s.eng == nil {
		return ErrClosed
	}
	if err := s.leasedBy(s.eng); err != nil {
		return err
	}
	e := s.eng
	s.eng = nil
	if s.suspended {
		s.suspended = false
		return s.unsaved
	}
	e.Halt()
	err := e.End(context.Background())
	s.unlock()
	segments.GiveBack(worthCollecting)
	return err
}

// worthCollecting is how much the pools may hold after Close.
const worthCollecting = 32 << 20

// leased returns ErrLeased while a match is open.
func (s *Store) leased() error {
	e := s.enterAlways()
	defer s.leave()
	return s.leasedBy(e)
}

func (s *Store) leasedBy(e *engine.Engine) error {
	n := s.matches.Load()
	if n == 0 || e == nil {
		return nil
	}
	what := "one match"
	if n > 1 {
		what = fmt.Sprintf("%d matches", n)
	}
	if _, oldest := e.Segments.Leases(); !oldest.IsZero() {
		what += fmt.Sprintf(", the oldest lease since %s", oldest.Format("15:04:05"))
	}
	return fmt.Errorf("%w: %s", ErrLeased, what)
}

// Suspend checkpoints and lets go of every lock and file handle, so that the operating system has no reason to kill
// the app in the background. It waits for the operations under way. Handles stay valid; operations that begin get
// ErrSuspended until Resume. If ctx ends while it waits, the store is not suspended, and the error says that operations are under way.
// After any other error, that of ctx among them, it is suspended all the same: another Suspend, and Close, return the error again.
func (s *Store) Suspend(ctx context.Context) error {
	if err := s.lifecycle.Own(ctx, ErrSuspended); err != nil {
		return fmt.Errorf("db: suspend: operations are under way still: %w", err)
	}
	defer s.lifecycle.Disown()
	if s.suspended {
		return s.unsaved
	}
	if s.eng == nil {
		return ErrClosed
	}
	e := s.eng
	e.Halt()
	s.suspended, s.unsaved = true, e.End(ctx)
	s.unlock()
	return s.unsaved
}

// Resume takes the lock again and goes on. Open matches are looked up anew when they are next used: another process may
// have changed the store meanwhile. ErrLocked if another process has the store open, fs.ErrNotExist if its folder is not there, or empty: call it
// again later. An error, too, if another store lies there: it names both, and touches nothing.
func (s *Store) Resume(ctx context.Context) error {
	if err := s.lifecycle.Own(ctx, nil); err != nil {
		return fmt.Errorf("db: resume: operations are under way still: %w", err)
	}
	defer s.lifecycle.Disown()
	if !s.suspended {
		if s.eng == nil {
			return ErrClosed
		}
		return nil
	}
	if _, err := folder.StillThere(s.o.Inside.FS, s.dir); err != nil {
		return err
	}
	if err := s.acquireLock(); err != nil {
		return err
	}
	e, err := engine.Open(ctx, s.dir, s.engineOptions())
	if err != nil {
		s.unlock()
		return err
	}
	s.opened()
	s.adopt(e)
	s.suspended, s.unsaved = false, nil
	e.Start(s.indexDamaged)
	return nil
}

// adopt makes e the store's engine. Leases of the old one protect nothing in the new one, so every open match is looked
// up anew when it is used; what it rests on stays pinned.
func (s *Store) adopt(e *engine.Engine) {
	s.eng = e
	s.gen++
}
