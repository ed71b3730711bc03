package llamaserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/dormousekv/dormouse/db"
)

// ErrOpening is what Opened gives while the store is being opened.
var ErrOpening = errors.New("the store is being opened")

// shelf is the store, or why there is none. Safe for concurrent use.
type shelf struct {
	dir string
	log *slog.Logger

	db        atomic.Pointer[db.Store]
	state     atomic.Value           // openError: why there is no store
	tried     chan struct{}          // closed when it is known for the first time whether there is one
	first     sync.Once              // closes tried
	noRoom    atomic.Pointer[string] // why nothing could be stored the last time; nil: it could
	suspended chan struct{}          // somebody has seen that the store has suspended itself
}

// openError makes errors of all types fit into one atomic value.
type openError struct{ err error }

func newShelf(dir string, log *slog.Logger) *shelf {
	s := &shelf{dir: dir, log: log, tried: make(chan struct{}), suspended: make(chan struct{}, 1)}
	s.state.Store(openError{ErrOpening})
	return s
}

// open opens the store. If another process has it, open tries again until that one is done. It returns nil if ctx ends before.
func (s *shelf) open(ctx context.Context, o db.Options) *db.Store {
	for said := ""; ctx.Err() == nil; {
		store, err := db.Open(ctx, s.dir, o)
		if err == nil {
			return store
		}
		if ctx.Err() != nil {
			break
		}
		s.state.Store(openError{err})
		s.known()
		if said != err.Error() {
			said = err.Error()
			s.log.Warn("no store: requests pass until there is one", "dir", s.dir, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
	s.known()
	return nil
}

// publish gives everybody a store that was opened.
func (s *shelf) publish(store *db.Store) {
	s.db.Store(store)
	s.state.Store(openError{nil})
	s.log.Info("the store is open", "dir", s.dir)
	if st, err := store.Stats(); err == nil && st.Full {
		s.log.Warn(s.notStoring(st), "dir", s.dir)
	}
	s.known()
}

// known says that it is known whether there is a store.
func (s *shelf) known() { s.first.Do(func() { close(s.tried) }) }

// store returns the store, or why there is none.
func (s *shelf) store() (*db.Store, error) {
	if store := s.db.Load(); store != nil {
		return store, nil
	}
	return nil, s.state.Load().(openError).err
}

// opened returns the store, once it is known whether there is one.
func (s *shelf) opened(ctx context.Context) (*db.Store, error) {
	if _, err := s.store(); errors.Is(err, ErrOpening) {
		select {
		case <-s.tried:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return s.store()
}

// wakes is told of errors of the store. One that says that the store has suspended itself, since its index was damaged, has it resumed.
func (s *shelf) wakes(err error) {
	if _, none := s.store(); none != nil || !errors.Is(err, db.ErrSuspended) {
		return
	}
	select {
	case s.suspended <- struct{}{}:
	default:
	}
}

// resume has a suspended store go on. It tries until the store does, or ctx ends.
func (s *shelf) resume(ctx context.Context, store *db.Store) (resumed bool) {
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		err := store.Resume(ctx)
		if err == nil {
			select { // whoever saw it suspended meanwhile
			case <-s.suspended:
			default:
			}
			s.log.Info("the store goes on", "dir", s.dir)
			return true
		}
		s.log.Warn("the store is suspended", "dir", s.dir, "err", err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

// put remembers what came of the last put, and logs when there is no room any more, and when there is again.
func (s *shelf) put(err error) {
	switch {
	case errors.Is(err, db.ErrNoSpace):
		why := err.Error()
		if s.noRoom.Swap(&why) == nil {
			s.log.Warn("not storing", "err", err)
		}
	case err == nil:
		if s.noRoom.Swap(nil) != nil {
			s.log.Info("storing again")
		}
	}
}

// notStoring says why nothing is stored although the store is open: the file system has no room. It is empty if it has.
func (s *shelf) notStoring(st db.Stats) string {
	if st.Full {
		return fmt.Sprintf("not storing: %s free, %s are kept free", humanize.IBytes(uint64(max(0, st.DiskFree))), humanize.IBytes(uint64(st.KeptFree)))
	}
	if why := s.noRoom.Load(); why != nil {
		return "not storing: " + *why
	}
	return ""
}
