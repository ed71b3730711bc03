package admin

import (
	"context"
	"errors"
	"log/slog"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/inside"
	"github.com/dormousekv/dormouse/db/internal/space"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// CompactOptions say what is worth rewriting, and how the store is opened.
type CompactOptions struct {
	db.CompactOptions
	AllowSharedDir bool         // as in db.Options
	Logger         *slog.Logger // as in db.Options
}

// Compact is [db.Store.Compact] of a store that nobody has open. It evicts nothing, and makes no store where there is none
// (fs.ErrNotExist). What is lost and can be made anew is: FORMAT, the index, the Bloom filter. A store that was left by a process that
// was killed is recovered, as by [db.Open].
//
// The files of a store that was closed occupy no more than before, unless one was made anew: segments are rewritten only if that gives
// back more than the rewriting itself may take.
func Compact(ctx context.Context, dir string, o CompactOptions) (db.Compacted, error) {
	if err := o.Validate(); err != nil {
		return db.Compacted{}, err
	}
	if _, err := LostFormat(dir); err != nil { // Open would make a store where there is none
		return db.Compacted{}, err
	}
	before, err := folder.Bytes(vfs.OS, dir)
	if err != nil {
		return db.Compacted{}, err
	}
	s, err := db.Open(ctx, dir, db.Options{
		Budget: 1 << 50, MinFree: -1, SegmentBytes: 64 << 20, CheckpointInterval: -1,
		AllowSharedDir: o.AllowSharedDir, Progress: o.Progress, Logger: o.Logger,
		// Records move to new segments, the index says so in new pages, and the log goes on for that.
		Inside: inside.Options{CompactLeast: 8*space.BlockBytes + engine.MinLogAhead, LogAhead: engine.MinLogAhead},
	})
	if err != nil {
		return db.Compacted{Before: before, After: before}, err
	}
	out, err := s.Compact(ctx, o.CompactOptions)
	err = errors.Join(err, s.Close())
	out.Before = before
	after, merr := folder.Bytes(vfs.OS, dir)
	out.After = after
	return out, errors.Join(err, merr)
}
