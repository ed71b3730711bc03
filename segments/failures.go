package segments

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// failures are what is said of many: the first, one of each other cause, and how many there were.
type failures struct {
	told error
	n    int
}

// add counts err, of n things; nil is none.
func (f *failures) add(err error, n int) {
	if err != nil {
		f.told, f.n = tell(f.told, err), f.n+n
	}
}

func (f *failures) err() error {
	if f.n < 2 {
		return f.told
	}
	return fmt.Errorf("%w; %d failures in all", f.told, f.n)
}

// causes are what callers ask an error for.
var causes = []error{
	vfs.ErrPoisoned, vfs.ErrNoSpace, vfs.ErrNotSynced, damage.ErrCorrupt, ErrMissing, ErrForeign, fs.ErrPermission, context.Canceled, context.DeadlineExceeded,
}

// tell adds next to err, unless err has its cause: of thousands of errors a few say enough. Nil is none.
func tell(err, next error) error {
	switch {
	case err == nil:
		return next
	case slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(next, cause) && !errors.Is(err, cause) }):
		return fmt.Errorf("%w; %w", err, next)
	}
	return err
}
