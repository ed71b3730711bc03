package prefix

import (
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Errors that mark a record of a found block as unusable.
var (
	// ErrGone says that a block was deleted or evicted.
	ErrGone = fmt.Errorf("deleted or evicted: %w", segments.ErrDestroyed)
	// ErrCollision says that a record is whole, and another prompt's.
	ErrCollision = fmt.Errorf("%w: the key belongs to another prefix", damage.ErrCorrupt)
	// ErrFlagged says that a record was found damaged before.
	ErrFlagged = fmt.Errorf("%w, as was found earlier; a put of the same prefix replaces it", damage.ErrCorrupt)
)

// ReasonOf turns what reading a record returned, or what marks it as unusable, into the reason why a prefix ends at a position.
func ReasonOf(err error, at int) kv.Reason {
	switch {
	case errors.Is(err, ErrCollision):
		return kv.Reason{Code: kv.Collision, At: at, Err: err}
	case errors.Is(err, segments.ErrDestroyed):
		return kv.Reason{Code: kv.Gone, At: at, Err: err}
	}
	return kv.Reason{Code: kv.Damaged, At: at, Err: err}
}
