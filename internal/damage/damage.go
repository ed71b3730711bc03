package damage

import (
	"errors"
	"fmt"
	"strings"
)

// ErrCorrupt is what every [*Error] answers to errors.Is.
var ErrCorrupt = errors.New("corrupt")

// Error is damage at one place of one file.
type Error struct {
	File     string
	Offset   int64
	What     string // the thing that is damaged: "record header", "plane of layer 3 K"
	Expected string // empty if unknown
	Found    string
	Err      error // the cause, if another error
}

// New returns damage whose Expected and Found are printed values.
func New(file string, offset int64, what string, expected, found any) *Error {
	return &Error{File: file, Offset: offset, What: what, Expected: fmt.Sprint(expected), Found: fmt.Sprint(found)}
}

// Wrap returns damage that another error reported.
func Wrap(file string, offset int64, what string, err error) *Error {
	return &Error{File: file, Offset: offset, What: what, Err: err}
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		fmt.Fprintf(&b, "%s: ", e.File)
	}
	fmt.Fprintf(&b, "corrupt %s at offset %d", e.What, e.Offset)
	switch {
	case e.Expected != "" && e.Found != "":
		fmt.Fprintf(&b, ": expected %s, found %s", e.Expected, e.Found)
	case e.Expected != "":
		fmt.Fprintf(&b, ": expected %s", e.Expected)
	case e.Found != "":
		fmt.Fprintf(&b, ": found %s", e.Found)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

func (e *Error) Unwrap() error        { return e.Err }
func (e *Error) Is(target error) bool { return target == ErrCorrupt }
