package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/dormousekv/dormouse/db/admin"
)

// lostFormat says in a sentence that FORMAT is lost, and what restores it; nothing if it is sound. What else may be wrong
// with dir, opening it will tell.
func lostFormat(dir string) string {
	why, err := admin.LostFormat(dir)
	switch {
	case err != nil || why == nil:
		return ""
	case errors.Is(why, fs.ErrNotExist):
		why = fmt.Errorf("%s is missing", filepath.Join(dir, "FORMAT"))
	}
	return why.Error() + "; what it said was taken from a segment. Opening the store for writing restores it, and so does 'kvdump compact'"
}
