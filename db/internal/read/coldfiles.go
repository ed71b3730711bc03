package read

import (
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/segments"
)

// openFiles is how many segments a cold restore keeps open that it does not read just now.
const openFiles = 4

// files are the segments that a cold restore has open for reads around the page cache.
type files struct {
	set *segments.Set

	mu   lock.Mutex[lock.Reads] // guards all below
	open []*openFile            // oldest first
}

type openFile struct {
	segment uint64
	f       *segments.Direct
	users   int
}

// read fills b from offset off of a segment.
func (f *files) read(segment uint64, b []byte, off int64) error {
	x, err := f.take(segment)
	if err != nil {
		return err
	}
	defer f.give(x)
	if n, err := x.f.ReadAt(b, off); n < len(b) {
		return fmt.Errorf("%d bytes of %d at %d: %w", n, len(b), off, err)
	}
	return nil
}

// try opens a segment.
func (f *files) try(segment uint64) error {
	x, err := f.take(segment)
	if err == nil {
		f.give(x)
	}
	return err
}

// take returns a segment's file, until give.
func (f *files) take(segment uint64) (*openFile, error) {
	f.mu.Lock()
	for _, x := range f.open {
		if x.segment == segment {
			x.users++
			f.mu.Unlock()
			return x, nil
		}
	}
	f.mu.Unlock()
	d, err := f.set.OpenDirect(segment)
	if err != nil {
		return nil, err
	}
	x := &openFile{segment, d, 1}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = append(f.open, x) // perhaps a second time: both are used until they are old
	return x, nil
}

// give ends the use of a file, and closes the oldest that nobody uses, if there are many.
func (f *files) give(x *openFile) {
	f.mu.Lock()
	x.users--
	var old *openFile
	if i := slices.IndexFunc(f.open, func(x *openFile) bool { return x.users == 0 }); i >= 0 && len(f.open) > openFiles {
		old = f.open[i]
		f.open = slices.Delete(f.open, i, i+1)
	}
	f.mu.Unlock()
	if old != nil {
		old.f.Close()
	}
}

// close closes all. Nothing is being read.
func (f *files) close() {
	for _, x := range f.open {
		x.f.Close()
	}
	f.open = nil
}
