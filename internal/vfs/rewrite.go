package vfs

import (
	"fmt"
	"io"
)

// Rewrite writes [from, to) of f once more as it is read, a buffer at a time. After an fsync that has failed, memory may hold pages for
// clean that the disk never got: no later fsync would write them. What the disk cannot read is not in memory, and is left as the disk has
// it: unread is why. But what cannot be read for a reason that passes ([Passing]) may be, and is an error.
func Rewrite(f File, buf []byte, from, to int64) (unread, err error) {
	const page = 4096
	for from < to { // not up to an EOF: a disk that is gone fails there, too
		n, err := f.ReadAt(buf[:min(to-from, int64(len(buf)))], from)
		if n == 0 && err == io.EOF {
			break
		}
		if n == 0 && Passing(err) {
			return unread, fmt.Errorf("%s: offset %d: %w", f.Name(), from, err)
		}
		if n == 0 {
			unread = err
			from = (from/page + 1) * page
			continue
		}
		written, err := f.WriteAt(buf[:n], from)
		if err == nil && written < n {
			err = io.ErrShortWrite
		}
		if err != nil {
			return unread, err
		}
		from += int64(n)
	}
	return unread, nil
}
