package engine

import (
	"errors"
	"io/fs"
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/sessions"
)

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

// logDoomed repeats the deletions of sessions that are not done, behind the head of a new log file. The caller holds commitMu.
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
