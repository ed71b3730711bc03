package admin

import (
	"context"
	"errors"
	"io/fs"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/sessions"
)

// sessions copies every session: all of its frames, or those before the damage.
func (c *copier) sessions(ctx context.Context) error {
	w := c.w
	dir := w.path(folder.SessionsDir)
	names, err := w.fs.List(dir)
	if err != nil {
		return err
	}
	o := sessions.Options{FS: w.fs, Dir: dir, UUID: w.e.Format.UUID}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		id, tmp, ok := sessions.Named(name)
		if !ok || tmp {
			continue
		}
		got, err := sessions.Read(o, id)
		sound := got.Head.Scope == id // else not even the head is
		lost := LostSession{Scope: id, File: o.Path(id), Frames: len(got.Frames), Err: err}
		var bad *damage.Error
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, vfs.ErrVersion):
			return folder.OfAnotherRelease(err)
		case errors.Is(err, vfs.ErrForeign), errors.Is(err, vfs.ErrNotRegular):
			w.note("%v", err)
			continue
		case errors.As(err, &bad):
			lost.Offset = bad.Offset
			w.out.LostSessions = append(w.out.LostSessions, lost)
		case err != nil:
			lost.Err = damage.Wrap(lost.File, 0, "session file", err)
			w.out.LostSessions = append(w.out.LostSessions, lost)
		case got.Torn != "":
			w.note("%s: torn end of a session at offset %d: %s", o.Path(id), got.End, got.Torn)
		}
		if !sound {
			continue
		}
		if err := c.n.Journals.Copy(id, got.Frames); err != nil {
			return err
		}
		w.out.Sessions++
	}
	return nil
}
