package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/dormousekv/dormouse/db/internal/check"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// damagedStore is one, opened as far as it can be read.
type damagedStore struct {
	dir string
	o   RepairOptions
	out *Repaired
	fs  *salvageFS
	e   *engine.Engine

	found   check.Report                // of all but sessions
	remains []*damage.Error             // bytes that no record explains
	entries map[recovery.ID]index.Entry // all that is stored; when it is copied, what is lost and known, too
	saved   map[recovery.ID]bool
	failed  map[recovery.ID]error // why a record of entries was not saved
}

func newDamagedStore(disk vfs.FS, dir string, o RepairOptions, out *Repaired) *damagedStore {
	return &damagedStore{
		dir: dir, o: o, out: out, fs: newSalvageFS(disk),
		entries: map[recovery.ID]index.Entry{}, saved: map[recovery.ID]bool{}, failed: map[recovery.ID]error{},
	}
}

func (w *damagedStore) path(name string) string { return filepath.Join(w.dir, name) }

func (w *damagedStore) note(format string, args ...any) {
	w.out.Notes = append(w.out.Notes, fmt.Sprintf(format, args...))
}

func (w *damagedStore) damaged(d *damage.Error) { w.out.Damage = append(w.out.Damage, d) }

// open recovers the store, has it checked, and lists what is stored. An index of which one page is damaged is not used: it need not name all
// that is.
func (w *damagedStore) open(ctx context.Context) error {
	if err := w.identify(); err != nil {
		return err
	}
	var doubt error
	name := w.path(folder.IndexName)
	if err := w.fs.readable(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		doubt = damage.Wrap(name, 0, "index", err)
	}
	err := w.recover(ctx, doubt)
	if bad := new(damage.Error); errors.As(err, &bad) && bad.File == name && doubt == nil {
		return w.recover(ctx, bad)
	}
	return err
}

func (w *damagedStore) recover(ctx context.Context, doubt error) (err error) {
	w.e, err = engine.OpenRebuilt(ctx, w.dir, engine.Options{
		FS: w.fs, Logger: slog.New(slog.DiscardHandler), Budget: 1 << 50, ReadOnly: true, Alone: true, Salvage: true,
		Rank: rank, Progress: w.o.Progress,
	}, doubt)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			w.e.Abandon()
		}
	}()
	if w.found, w.remains, err = check.Saved(ctx, w.e, w.o.Progress); err != nil {
		return err
	}
	for _, d := range w.found.Damage {
		if d.File == w.path(folder.IndexName) && !w.e.Recovered.Found.Rebuilt {
			return d
		}
	}
	v := w.e.View()
	defer v.Release()
	return v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		w.entries[recovery.IDOf(&x)] = x
		return ctx.Err() == nil
	})
}

// identify looks whose the segments are. Where FORMAT is lost, a segment's header has what it said.
func (w *damagedStore) identify() error {
	name := w.path(folder.FormatName)
	f, restored, err := folder.Read(w.fs, w.dir)
	switch {
	case errors.Is(err, vfs.ErrVersion):
		return err
	case errors.Is(err, fs.ErrNotExist) && !errors.Is(err, damage.ErrCorrupt):
		return folder.NoStoreError(w.dir)
	case err != nil:
		return damage.Wrap(name, 0, "FORMAT", fmt.Errorf("no segment says what was in it, and without the hash seed no prompt finds its records: %w", err))
	case restored:
		w.note("what FORMAT said is taken from a segment")
		return nil
	}
	// The log says for itself whose it is.
	if uuid, _, found, _ := segments.Identify(w.fs, w.path(folder.SegmentsDir)); found && uuid != f.UUID {
		return fmt.Errorf("%s: %w: it is of store %s, the segments are of %s", name, vfs.ErrForeign, f.UUID, uuid)
	}
	return nil
}
