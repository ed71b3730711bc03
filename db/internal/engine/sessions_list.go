package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/sessions"
)

// sessionNames calls do for every file that has the name of a session. Unless the caller holds sessionSet.mu, files may come and go meanwhile.
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
	_, bytes := e.SessionStats()
	s.bytes.Add(bytes)
	s.counted.Store(true)
}

// SessionStats is how many session files there are, and what they occupy. It asks the folder: of what comes or goes meanwhile, some may be missed.
func (e *Engine) SessionStats() (files, bytes int64) {
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

// Sessions lists the session files by scope.
func (e *Engine) Sessions(ctx context.Context) (out []SessionInfo, err error) {
	s := e.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	err = e.sessionNames(func(id kv.ScopeID, tmp bool, _ string, info vfs.Info) error {
		if err := ctx.Err(); err != nil || tmp {
			return err
		}
		_, first, err := sessions.Peek(e.sessionOptions(), id)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, vfs.ErrForeign) {
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
	if x := s.open[id]; x != nil && x.f != nil {
		return x.f.Contents()
	}
	return sessions.Read(e.sessionOptions(), id)
}
