package engine

import (
	"github.com/dormousekv/dormouse/db/internal/checkpoint"
	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/journals"
	"github.com/dormousekv/dormouse/db/internal/space"
)

// Errors that db exports under the same names, where they are explained.
var (
	ErrNotFound     = commit.ErrNotFound
	ErrRefGone      = commit.ErrRefGone
	ErrNotDestroyed = checkpoint.ErrNotDestroyed
	ErrNotMoved     = space.ErrNotMoved
	ErrNoBarrier    = commit.ErrNoBarrier

	ErrSessionOpen   = journals.ErrOpen
	ErrSessionClosed = journals.ErrClosed
	ErrStale         = journals.ErrStale
)

// IsIndexDamage reports whether err says that index.db cannot be trusted any more.
func IsIndexDamage(err error) bool { return commit.IsIndexDamage(err) }
