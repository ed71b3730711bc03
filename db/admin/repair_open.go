package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/boot"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/wal"
)

// damagedStore is one, opened as far as it can be read.
type damagedStore struct {
	dir      string
	disk     *salvageFS
	files    damagedFiles
	progress func(what string, done, total int64)

	format   folder.Format
	hasher   kv.Hasher
	segments *segments.Set
	found    recovery.Result
	entries  map[recovery.ID]index.Entry // all that is stored
}

func (w *damagedStore) path(name string) string { return filepath.Join(w.dir, name) }

// lockDamaged takes the locks of the damaged store, as every reader does. A store without LOCK, or with something else of that name, is
// one that no process has open.
func lockDamaged(dir string) (release func(), err error) {
	var held []*vfs.Lock
	release = func() {
		for _, lock := range held {
			lock.Release()
		}
	}
	for _, name := range []string{folder.LockName, folder.FormatName} {
		path := filepath.Join(dir, name)
		if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
			continue
		}
		lock, err := vfs.ShareLock(path)
		switch {
		case err == nil:
			held = append(held, lock)
		case errors.Is(err, fs.ErrNotExist), name == folder.FormatName && !errors.Is(err, vfs.ErrLocked):
		default:
			release()
			return nil, err
		}
	}
	return release, nil
}

// open recovers the store and lists what is stored. An index with damage anywhere is not used: it need not name all that is stored.
func (w *damagedStore) open(ctx context.Context) (err error) {
	if err := w.identify(); err != nil {
		return err
	}
	var doubt error
	name := w.path(folder.IndexName)
	if err := w.disk.readable(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		doubt = damage.Wrap(name, 0, "index", err)
	}
	err = w.recover(ctx, doubt)
	if bad := new(damage.Error); errors.As(err, &bad) && bad.File == name && doubt == nil {
		w.close()
		err = w.recover(ctx, bad)
	}
	return err
}

// identify looks whose the segments are. Where FORMAT is lost, a segment's header has what it said.
func (w *damagedStore) identify() error {
	name := w.path(folder.FormatName)
	format, restored, err := folder.Read(w.disk, w.dir)
	w.format, w.hasher = format, kv.NewHasher(format.Seed)
	switch {
	case errors.Is(err, vfs.ErrVersion):
		return err
	case errors.Is(err, fs.ErrNotExist) && !errors.Is(err, damage.ErrCorrupt):
		return folder.NoStoreError(w.dir)
	case err != nil:
		return damage.Wrap(name, 0, "FORMAT", fmt.Errorf("no segment says what was in it, and without the hash seed no prompt finds its records: %w", err))
	case restored:
		w.files.damaged(name, 0, fmt.Errorf("%s: lost or damaged; what it said is taken from a segment", name))
		return nil
	}
	// The log says for itself whose it is.
	if uuid, _, found, _ := segments.Identify(w.disk, w.path(folder.SegmentsDir)); found && uuid != format.UUID {
		return fmt.Errorf("%s: %w: it is of store %s, the segments are of %s", name, vfs.ErrForeign, format.UUID, uuid)
	}
	return nil
}

func (w *damagedStore) recover(ctx context.Context, doubt error) (err error) {
	quiet, uuid := slog.New(slog.DiscardHandler), w.format.UUID
	w.segments, err = segments.Open(segments.Options{
		FS: w.disk, Dir: w.path(folder.SegmentsDir), UUID: uuid, Seed: w.format.Seed, ReadOnly: true, Logger: quiet,
	})
	if err != nil {
		return err
	}
	log := wal.Options{FS: w.disk, Dir: w.path(folder.LogDir), UUID: uuid, Logger: quiet}
	failed := folder.Unsynced(w.disk, w.dir)
	if !failed {
		log.Boot = boot.Number()
	}
	w.found, err = recovery.Run(ctx, recovery.Input{
		FS: w.disk, Dir: w.dir, Segments: w.segments, Hasher: w.hasher, Unsynced: failed, ReadOnly: true, Salvage: true,
		Doubt: doubt, Logger: quiet, LogOptions: log,
		IndexOptions: index.Options{FS: w.disk, Path: w.path(folder.IndexName), UUID: uuid, ReadOnly: true, Logger: quiet},
		Rank:         func(_ index.Entry, clock uint64) uint64 { return rank(commit.Leaf{Clock: clock}) },
		Progress:     func(done, total int64) { w.progress("scan segments", done, total) },
	})
	switch {
	case errors.Is(err, wal.ErrVersion), errors.Is(err, vfs.ErrVersion):
		return folder.OfAnotherRelease(err)
	case err != nil:
		return err
	}
	return w.list(ctx)
}

// rank has all that is copied count as used when it was put, unless the index says more. The shift is that of db's policies.
func rank(l commit.Leaf) uint64 { return l.Clock << 8 }

// list lists what is stored. The error is damage of the index.
func (w *damagedStore) list(ctx context.Context) error {
	var bad error
	if !w.found.Rebuilt {
		if err := w.found.Index.Verify(ctx, func(d *damage.Error) { bad = d }, func(int64) {}); err != nil || bad != nil {
			return errors.Join(err, bad)
		}
	}
	w.entries = map[recovery.ID]index.Entry{}
	v := w.found.Index.View()
	defer v.Release()
	return v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		w.entries[recovery.IDOf(&x)] = x
		return true
	})
}

// close lets go of the files.
func (w *damagedStore) close() {
	if w.found.Index != nil {
		w.found.Index.Close()
	}
	if w.segments != nil {
		w.segments.Abandon()
	}
}
