package check

import (
	"context"
	"errors"
	"io/fs"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/sessions"
)

// sessions reads every frame of every session. A crash may leave a torn end: that is no damage.
func (v *verifier) sessions(ctx context.Context) error {
	dir := v.e.Path(folder.SessionsDir)
	names, err := v.e.FS.List(dir)
	if err != nil {
		v.note("%v", err)
		return nil
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		path := v.e.Path(folder.SessionsDir + "/" + name)
		id, tmp, ok := sessions.Named(name)
		switch {
		case !ok:
			v.note("%s: not a file of the store", path)
			continue
		case tmp:
			if err := v.e.Journals.CheckTemporary(id); errors.Is(err, vfs.ErrForeign) {
				v.note("%v: the session cannot be written anew", err)
			} else {
				v.note("%s: a crash left it when a session was written anew", path)
			}
			continue
		}
		c, err := v.e.Journals.Read(id)
		var bad *damage.Error
		switch {
		case errors.Is(err, vfs.ErrVersion):
			return folder.OfAnotherRelease(err)
		case errors.Is(err, vfs.ErrForeign), errors.Is(err, vfs.ErrNotRegular): // the store does without
			v.note("%v: the session cannot be opened", err)
			continue
		case errors.Is(err, fs.ErrNotExist):
			if _, err := v.e.FS.Stat(path); err == nil {
				v.note("%s: a session that is being deleted", path)
			}
			continue
		case errors.As(err, &bad):
			v.report(bad)
		case err != nil:
			v.unreadSessions = append(v.unreadSessions, err)
			continue
		case c.Torn != "":
			v.note("%s: torn end of a session at offset %d: %s", path, c.End, c.Torn)
		}
		v.out.Files++
		v.read(c.Size)
	}
	return nil
}
