package engine

import (
	"errors"

	"github.com/dormousekv/dormouse/index"
)

// Errors that db exports under the same names, where they are explained.
var (
	ErrNotFound     = errors.New("not found")
	ErrNotDestroyed = errors.New("not all that is dead could be destroyed")
	ErrNotMoved     = errors.New("not all that lives could be moved")
	ErrNoBarrier    = errors.New("no room for a barrier in the log")

	ErrSessionOpen   = errors.New("the scope's session is open already")
	ErrSessionClosed = errors.New("session is closed")
	ErrStale         = errors.New("the session was changed by another process")
)

// ErrRefGone says that what a ref was to name was deleted or moved meanwhile.
var ErrRefGone = errors.New("deleted or moved meanwhile")

// IsIndexDamage reports whether err says that index.db cannot be trusted any more.
func IsIndexDamage(err error) bool { return errors.Is(err, index.ErrDamaged) }
