package segments

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// failures are the errors of many things of a kind, of which the first ones say enough.
type failures struct {
	most int    // how many are kept, and one more for each of causes that none of these has
	of   string // what they are errors of
	kept []error
	more int // that are not kept
}

// causes are what callers ask an error for.
var causes = []error{
	vfs.ErrPoisoned, vfs.ErrNoSpace, vfs.ErrNotSynced, damage.ErrCorrupt, ErrMissing, ErrForeign, fs.ErrPermission, context.Canceled, context.DeadlineExceeded,
}

// add keeps err, or counts it. Nil is none.
func (f *failures) add(err error) {
	switch {
	case err == nil:
	case len(f.kept) < f.most || f.tells(err):
		f.kept = append(f.kept, err)
	default:
		f.more++
	}
}

// tells reports whether err has a cause that none of those has that are kept.
func (f *failures) tells(err error) bool {
	return slices.ContainsFunc(causes, func(cause error) bool {
		return errors.Is(err, cause) && !slices.ContainsFunc(f.kept, func(k error) bool { return errors.Is(k, cause) })
	})
}

// err is nil if there were none.
func (f *failures) err() error {
	if len(f.kept) == 0 {
		return nil
	}
	return &several{f.kept, f.more, f.of}
}

// several is the error of failures.
type several struct {
	kept []error
	more int
	of   string
}

func (e *several) Error() string {
	var says []string
	for _, err := range e.kept {
		says = append(says, err.Error())
	}
	if e.more > 0 {
		says = append(says, "and "+damage.Count(e.more, "other "+e.of))
	}
	return strings.Join(says, "; ")
}

func (e *several) Unwrap() []error { return e.kept }
