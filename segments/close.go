package segments

import (
	"fmt"
	"time"
)

// Close syncs and seals what was written, then closes all files. It fails with ErrLeased, and closes nothing, while leases
// are open or reads under way. Any other error comes from the last sync; the set is closed nevertheless.
func (s *Set) Close() error {
	s.reclaiming.Lock()
	defer s.reclaiming.Unlock()
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if open, oldest := s.files.queue.leases.count(); open > 0 {
		return fmt.Errorf("%w: %d leases are open, the oldest for %s", ErrLeased, open, time.Since(oldest).Round(time.Millisecond))
	}
	for _, g := range s.files.sorted() {
		g.mu.Lock()
		pins := g.pins
		g.mu.Unlock()
		if pins > 0 {
			return fmt.Errorf("%w: %s is being read or written", ErrLeased, g.path)
		}
	}
	if s.files.close() {
		return ErrClosed
	}
	var err error
	if !s.files.o.ReadOnly && s.Err() == nil {
		s.appender.endWriters((*segment).fill)
		err = s.files.syncLocked()
	}
	for _, g := range s.files.sorted() {
		g.close()
	}
	return err
}

// Abandon closes all files as they are: nothing is synced or sealed, and open leases keep nothing any more. It is for
// a store that could not be opened, or that gives up its files after it has synced. No other call may be under way.
func (s *Set) Abandon() error {
	if s.files.close() {
		return ErrClosed
	}
	for _, g := range s.files.sorted() {
		g.close()
	}
	return nil
}

// close gives everything back, for good. A reader that came in the same moment keeps its map until it is done.
func (g *segment) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gone = true
	if g.pins == 0 {
		g.dropLocked()
	}
}
