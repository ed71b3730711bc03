package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// Bytes returns the allocated bytes of a store's files. It opens none of them.
func Bytes(fsys vfs.FS, dir string) (total int64, err error) {
	for _, sub := range []string{"", LogDir, SegmentsDir, SessionsDir} {
		names, lerr := fsys.List(filepath.Join(dir, sub))
		err = errors.Join(err, lerr)
		for _, name := range names {
			info, serr := fsys.Stat(filepath.Join(dir, sub, name))
			if info.Regular && HasName(sub, name) {
				total += info.Allocated
			}
			if !errors.Is(serr, fs.ErrNotExist) {
				err = errors.Join(err, serr)
			}
		}
	}
	return total, err
}

// SegmentPath is the file of a segment.
func SegmentPath(dir string, id uint64) string {
	return filepath.Join(dir, SegmentsDir, fmt.Sprintf("%016x.seg", id))
}
