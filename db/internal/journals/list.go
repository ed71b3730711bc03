package journals

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/sessions"
)

// Info is what a session's file says without being read as a whole.
type Info struct {
	Scope    kv.ScopeID
	Bytes    int64
	Modified time.Time
	First    sessions.Frame
	Err      error
}

// names calls do for every file that has the name of a session. Unless the caller holds mu, files may come and go meanwhile.
func (s *Set) names(do func(id kv.ScopeID, tmp bool, path string, info vfs.Info) error) error {
	names, err := s.o.FS.List(s.dir())
	if err != nil {
		return err
	}
	for _, name := range names {
		id, tmp, ok := sessions.Named(name)
		if !ok {
			continue
		}
		path := filepath.Join(s.dir(), name)
		info, err := s.o.FS.Stat(path)
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

// Bytes is what the files occupy, once that was counted.
func (s *Set) Bytes() int64 { return s.bytes.Load() }

// CheckTemporary returns vfs.ErrForeign where a session cannot be written anew: what lies under the name that it has meanwhile is somebody else's.
func (s *Set) CheckTemporary(id kv.ScopeID) error { return sessions.CheckTemporary(s.files, id) }

// Count finds out what the files occupy, once; from then on every change says so.
func (s *Set) Count() {
	if s.counted.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counted.Load() {
		return
	}
	_, bytes := s.Stats()
	s.bytes.Add(bytes)
	s.counted.Store(true)
}

// Stats is how many session files there are, and what they occupy. It asks the folder: of what comes or goes meanwhile, some may be missed.
func (s *Set) Stats() (files, bytes int64) {
	err := s.names(func(_ kv.ScopeID, tmp bool, _ string, info vfs.Info) error {
		if info.Regular && info.Size > 0 {
			bytes += info.Allocated
			if !tmp {
				files++
			}
		}
		return nil
	})
	if err != nil {
		s.o.Logger.Warn("what sessions occupy is not known", "dir", s.o.Dir, "error", err)
	}
	return files, bytes
}

// List lists the session files by scope.
func (s *Set) List(ctx context.Context) (out []Info, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.names(func(id kv.ScopeID, tmp bool, _ string, info vfs.Info) error {
		if err := ctx.Err(); err != nil || tmp {
			return err
		}
		_, first, err := sessions.Peek(s.files, id)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, vfs.ErrForeign) {
			return nil
		}
		out = append(out, Info{Scope: id, Bytes: info.Size, Modified: info.Changed, First: first, Err: err})
		return nil
	})
	return out, err
}

// ReadFrames reads the frames of a session's file, whether it is open or not. Of one that is damaged it returns those before the damage,
// and where that is.
func (s *Set) ReadFrames(id kv.ScopeID) ([]sessions.Frame, error) {
	c, err := s.Read(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("session %s: %w", id, commit.ErrNotFound)
	}
	return c.Frames, err
}

// Read is ReadFrames with what else there is to say.
func (s *Set) Read(id kv.ScopeID) (sessions.Contents, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.open[id]; x != nil && x.f != nil {
		return x.f.Contents()
	}
	return sessions.Read(s.files, id)
}
