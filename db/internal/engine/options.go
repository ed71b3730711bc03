package engine

import (
	"log/slog"
	"time"

	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/tally"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// Options are db.Options, with every field filled in and checked.
type Options struct {
	FS     vfs.FS
	Logger *slog.Logger
	Kept   *Kept // nil: there was no engine before

	Budget, MinFree, MaxBlocks    int64
	HighWater, LowWater           float64
	Rank                          func(commit.Leaf) uint64 // of the policy
	Power                         bool                     // an acknowledgement waits for the disk
	CheckpointInterval            time.Duration
	CheckpointBytes, SegmentBytes int64
	BloomFPR                      float64
	LogAhead                      int64 // bounds what is reserved ahead in the log; 0: by the budget alone
	ReadOnly                      bool
	Alone                         bool // of a reader that needs the files to stay as they are: it keeps writers out
	Beside                        bool // of a reader: a writer has the store open
	Progress                      func(tally.Progress)
}
