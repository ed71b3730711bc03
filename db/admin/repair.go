package admin

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/inside"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// RepairOptions say how Repair goes about it.
type RepairOptions struct {
	Progress func(db.Progress)
	// AllowSharedDir accepts directories that other users can write to.
	AllowSharedDir bool
	// Inside is for the store's own tests.
	Inside inside.Options
}

// Repair makes a new store in the directory to, and copies into it what is whole of the damaged store in the directory from: every
// record that passes its checks and whose prefix does, all models, refs and notes, and every session up to its first damage. What was
// deleted stays deleted as far as index.db or the log still says so. The directory to must be missing or empty. Nothing in from changes,
// which may lie on a read-only medium. The new store has another UUID and the same hash seed, so that prompts keep their keys.
//
// A damaged index.db costs recency only, as long as the log is sound: the records come from the segments. If both are lost, refs are
// lost, and deleted data is back unless its bytes were already destroyed. Repaired.Unknown says so.
//
// The error says why there is no new store: ErrLocked, ErrNotEmpty, ErrVersion, ErrUnsafeDir, ErrNoSpace, fs.ErrNotExist where there is
// no store, ErrForeign where FORMAT or a log file belongs to another store, ErrCorrupt where FORMAT and the headers of all segments are
// lost, or that of the context. Then nothing is left of a new store. What is not copied is no error: the report counts it by file.
// Until it is whole, the new store lies in to.repair. A process that is killed leaves that directory.
func Repair(ctx context.Context, from, to string, o RepairOptions) (out Repaired, err error) {
	if from, err = filepath.Abs(from); err != nil {
		return out, err
	}
	if to, err = filepath.Abs(to); err != nil {
		return out, err
	}
	if err := folder.Prepare(vfs.OS, from, true, o.AllowSharedDir); err != nil {
		return out, err
	}
	if err := folder.CheckFiles(from, o.AllowSharedDir, slog.New(slog.DiscardHandler)); err != nil {
		return out, err
	}
	release, err := lockDamaged(from)
	if err != nil {
		return out, err
	}
	defer release()
	target, err := newTarget(from, to)
	if err != nil {
		return out, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, target.abandon())
			out = Repaired{}
		}
	}()
	files := damagedFiles{}
	old := &damagedStore{dir: from, disk: newSalvageFS(o.Inside.Disk(), files), files: files, progress: func(what string, done, total int64) {
		if o.Progress != nil {
			o.Progress(db.Progress{What: what, Done: done, Total: total})
		}
	}}
	defer old.close()
	if err := old.open(ctx); err != nil {
		return out, err
	}
	c := newCopier(old)
	if err := c.copyTo(ctx, target.building); err != nil {
		return out, err
	}
	old.report(&c.out)
	return c.out, target.commit()
}
