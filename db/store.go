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

	fs     vfs.FS
	hidden engine.Hidden
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
	// rebuilding is not nil while the index cannot be trusted; rebuilt counts the rebuilds that have ended.
	rebuilding atomic.Pointer[rebuilding]
	rebuilt    atomic.Uint64
}

func (s *Store) unlock() {
	if s.lock != nil {
		s.lock.Release()
		s.lock = nil
	}
}

func init() {
	engine.Using = func(store any, do func(*engine.Engine) error) error { return using(store.(*Store), do) }
}

// Options are those that the store was opened with, every zero field filled in.
func (s *Store) Options() Options { return s.o }

// Dir is the store's directory.
func (s *Store) Dir() string { return s.dir }

// door is what an operation enters: a store; a model, which must not be retired; a match, which must not be closed.
type door interface {
	enter() (*engine.Engine, error) // lets an operation use the engine until leave
	leave()
	store() *Store
}

// using is an operation: enter, do, leave.
func using(at door, do func(*engine.Engine) error) error {
	e, err := at.enter()
	if err != nil {
		return err
	}
	defer at.leave()
	return do(e)
}

// use is using, for an operation that gives something.
func use[T any](at door, do func(*engine.Engine) (T, error)) (out T, err error) {
	err = using(at, func(e *engine.Engine) (err error) {
		out, err = do(e)
		return err
	})
	return out, err
}

func (s *Store) enter() (*engine.Engine, error) {
	if err := s.lifecycle.Enter(false); err != nil {
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

func (s *Store) leave()        { s.lifecycle.Leave() }
func (s *Store) store() *Store { return s }

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
	s.lifecycle.Enter(true)
	defer s.leave()
	return s.leasedBy(s.eng)
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
	if _, err := folder.StillThere(s.fs, s.dir); err != nil {
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
