package folder

import (
	"errors"
	"io/fs"
)

var (
	// ErrNotEmpty is returned for a directory that has files but no store in it.
	ErrNotEmpty = errors.New("directory is not empty and holds no store")
	// ErrUnsafeDir is returned for a directory, or a file of the store, that others can write to.
	ErrUnsafeDir = errors.New("others can write to the store")
	// ErrReadOnly is returned by what would write to a store that is only read.
	ErrReadOnly = errors.New("store is open read-only")
)

// NoStoreError says that a directory, which may be there, holds no store. It is a fs.ErrNotExist.
type NoStoreError string

// Error names the directory.
func (dir NoStoreError) Error() string {
	return string(dir) + ": no store: there is no FORMAT, and no segment of one"
}

func (NoStoreError) Is(target error) bool { return target == fs.ErrNotExist }
