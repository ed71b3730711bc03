package engine

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/sessions"
)

// deleteSession removes a scope's file, with what a crash left of another one beside it. Nobody opens or makes the scope's session meanwhile, or
// asks whether it was deleted, and rest deletes what was stored until then: so whoever asks before he stores rows leaves none behind.
func (e *Engine) deleteSession(id kv.ScopeID, out *Deleted, rest func() error) error {
	e.countSessions()
	s, o := e.sessions, e.sessionOptions()
	s.mu.Lock()
	defer s.mu.Unlock()
	var bytes int64
	there := false
	for _, path := range []string{o.Path(id), o.Path(id) + ".tmp"} {
		info, err := e.FS.Stat(path)
		switch {
		case err == nil:
			bytes, there = bytes+info.Size, true
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	if !there { // who removed it may not have come to sync that
		return sessions.Remove(o, id)
	}
	switch _, _, err := sessions.Peek(o, id); {
	case errors.Is(err, vfs.ErrForeign):
		return nil
	case errors.Is(err, vfs.ErrVersion), vfs.Passing(err): // what is damaged is ours
		return err
	}
	if err := rest(); err != nil {
		return err
	}
	if x := s.open[id]; x != nil {
		if x.f != nil {
			x.f.Doom()
		}
		x.f, x.end = nil, sessionError(sessions.ErrDeleted)
		x.stamp.Size = 0
		delete(s.open, id)
	}
	if err := sessions.Remove(o, id); err != nil {
		return fmt.Errorf("the scope's session is not deleted: %w", err)
	}
	out.Sessions, out.Bytes = 1, out.Bytes+bytes
	return nil
}

// rewriteSessions writes every session's file anew, after an fsync of an earlier process that failed. One that is damaged stays.
func (e *Engine) rewriteSessions() error {
	return e.sessionNames(func(id kv.ScopeID, tmp bool, _ string, _ vfs.Info) error {
		if tmp {
			return nil
		}
		f, err := sessions.Open(e.sessionOptions(), id)
		if err == nil {
			frames, ferr := f.Frames()
			if err = ferr; err == nil {
				err = f.Replace(frames)
			}
			err = errors.Join(err, f.Close())
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, damage.ErrCorrupt) || errors.Is(err, vfs.ErrForeign) || errors.Is(err, vfs.ErrVersion) {
			return nil
		}
		return err
	})
}
