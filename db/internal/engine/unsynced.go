package engine

import (
	"context"
	"errors"
	"io/fs"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/wal"
)

// An fsync that fails leaves pages in memory that the disk never got, and that no later fsync writes: they read well until the
// power is cut. A store stops writing then. So that the next one, in the same boot, does not take them for durable, a file says
// that there are such pages. It need not be durable itself: what it is about is gone with it.

// markUnsynced leaves the file.
func (e *Engine) markUnsynced() {
	if e.o.ReadOnly {
		return
	}
	f, err := e.FS.Create(e.Path(folder.UnsyncedName))
	if err == nil {
		f.Close() // it is empty: nothing more can fail
	}
	if err == nil || errors.Is(err, fs.ErrExist) {
		return
	}
	// Another name takes neither room nor a file handle, and the filter can be built anew.
	if rerr := e.FS.Rename(e.Path(folder.BloomName), e.Path(folder.UnsyncedName)); rerr != nil {
		err = errors.Join(err, rerr)
		e.log.Error("an fsync failed, and the next open will not know it", "dir", e.Dir, "error", err)
	}
}

// unsynced reports whether an fsync had failed.
func (e *Engine) unsynced() bool { return folder.Unsynced(e.FS, e.Dir) }

// writeUnsynced writes everything once more that an earlier process may have failed to sync, if there was one: the records since
// the last checkpoint and the log, before anything comes behind them. If they cannot be written, nothing is. An error says that
// the index is damaged.
func (e *Engine) writeUnsynced(r *recovery.Result) error {
	if !e.unsynced() {
		return nil
	}
	err := e.rewriteRecords(r)
	if err == nil {
		err = e.Segments.Sync()
	}
	if err == nil {
		err = wal.RewriteFiles(e.LogOptions())
	}
	if err == nil {
		err = e.Journals.Rewrite()
	}
	if err == nil || IsIndexDamage(err) {
		return err
	}
	e.Segments.Poison(err)
	e.log.Error("what an fsync failed to write could not be written again", "dir", e.Dir, "error", err)
	return nil
}

// endUnsynced writes the index once more, which a later checkpoint does too, and takes the file away. The file stays for the
// next open if one of that fails. An error says that the index is damaged.
func (e *Engine) endUnsynced(ctx context.Context) error {
	if !e.unsynced() || e.Segments.Err() != nil {
		return nil
	}
	err := e.Index.Compact()
	if err == nil {
		err = e.Space.Checkpoint(ctx)
	}
	if err == nil {
		err = e.FS.Remove(e.Path(folder.UnsyncedName))
	}
	switch {
	case err == nil:
		e.log.Warn("an fsync had failed: what it should have written was written again", "dir", e.Dir)
	case IsIndexDamage(err):
		return err
	default:
		e.log.Error("after an fsync that failed, the index could not be written again", "dir", e.Dir, "error", err)
	}
	return nil
}

// rewriteRecords rewrites what lives in the segments that were not finished at the last checkpoint.
func (e *Engine) rewriteRecords(r *recovery.Result) error {
	young := map[uint64][]segments.Loc{}
	for _, s := range e.Segments.Segments() {
		if _, open := r.Log.First.Ends[s.ID]; open || !r.Log.HasFirst || s.ID >= r.Log.First.Next.Segment {
			young[s.ID] = nil
		}
	}
	v := e.View()
	defer v.Release()
	if err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		if locs, ok := young[x.Loc.Segment]; ok {
			young[x.Loc.Segment] = append(locs, x.Loc)
		}
		return true
	}); err != nil {
		return err
	}
	for id, locs := range young {
		if err := e.Segments.Rewrite(id, locs); err != nil {
			return err
		}
	}
	return nil
}
