package read

import (
	"fmt"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/segments"
)

// maxFiles is of how many segments a cold restore reads around the page cache, where the process may have so many files open. What lies in
// others is left to the map.
const maxFiles = 64

// files are the segments that a cold restore has open, by their ids; nil: it cannot be opened. They are all opened before the first is read.
type files map[uint64]*segments.Direct

// has opens a segment, if it can and may. Whatever keeps one from being opened is for the map to find out.
func (f files) has(set *segments.Set, segment uint64) bool {
	d, tried := f[segment]
	if !tried && len(f) < min(maxFiles, vfs.Handles()) {
		d, _ = set.OpenDirect(segment)
		f[segment] = d
	}
	return d != nil
}

// read fills b from offset off of a segment.
func (f files) read(segment uint64, b []byte, off int64) error {
	if n, err := f[segment].ReadAt(b, off); n < len(b) {
		return fmt.Errorf("%d bytes of %d at %d: %w", n, len(b), off, err)
	}
	return nil
}

// close closes all. Nothing is being read.
func (f files) close() {
	for _, d := range f {
		if d != nil {
			d.Close()
		}
	}
}
