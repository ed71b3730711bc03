package journals

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/sessions"
)

// Removed says what a deletion of a session took.
type Removed struct {
	Files int // 1, or 0 where the scope has no session
	Bytes int64
}

// Delete removes a scope's file, with what a crash left of another one beside it. Nobody opens or makes the scope's session meanwhile, or
// asks whether it was deleted, and rest deletes what was stored until then: so whoever asks before he stores rows leaves none behind.
func (s *Set) Delete(id kv.ScopeID, rest func() error) (none Removed, err error) {
	s.Count()
	s.mu.Lock()
	defer s.mu.Unlock()
	var bytes int64
	there := false
	for _, path := range []string{s.files.Path(id), s.files.Path(id) + ".tmp"} {
		info, err := s.o.FS.Stat(path)
		switch {
		case err == nil:
			bytes, there = bytes+info.Size, true
		case !errors.Is(err, fs.ErrNotExist):
			return none, err
		}
	}
	if !there { // who removed it may not have come to sync that
		return none, sessions.Remove(s.files, id)
	}
	switch _, _, err := sessions.Peek(s.files, id); {
	case errors.Is(err, vfs.ErrForeign):
		return none, nil
	case errors.Is(err, vfs.ErrVersion), vfs.Passing(err): // what is damaged is ours
		return none, err
	}
	if err := rest(); err != nil {
		return none, err
	}
	if x := s.open[id]; x != nil {
		if x.f != nil {
			x.f.Doom()
		}
		x.f, x.end = nil, Error(sessions.ErrDeleted)
		x.stamp.Size = 0
		delete(s.open, id)
	}
	if err := sessions.Remove(s.files, id); err != nil {
		return none, fmt.Errorf("the scope's session is not deleted: %w", err)
	}
	return Removed{Files: 1, Bytes: bytes}, nil
}

// Rewrite writes every session's file anew, after an fsync of an earlier process that failed. One that is damaged stays.
func (s *Set) Rewrite() error {
	return s.names(func(id kv.ScopeID, tmp bool, _ string, _ vfs.Info) error {
		if tmp {
			return nil
		}
		f, err := sessions.Open(s.files, id)
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
