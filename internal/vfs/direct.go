package vfs

import (
	"errors"
	"io"
)

// DirectAlign is what offsets, lengths and memory addresses of reads of a [DirectFile] are multiples of.
const DirectAlign = 4 << 10

// AlignDirect rounds n up to a multiple of [DirectAlign].
func AlignDirect(n int64) int64 { return (n + DirectAlign - 1) &^ (DirectAlign - 1) }

// DirectFile is a file that is open for reads around the page cache. Safe for concurrent use.
type DirectFile interface {
	// ReadAt returns fewer bytes than b has, and an error, where the file ends before.
	io.ReaderAt
	io.Closer
}

// OpenDirect opens an existing regular file for reads around the page cache; links are not followed. What was written to the file by other
// handles is seen. Where its file system refuses such reads, they are ordinary ones; where fsys has none, the error is
// [errors.ErrUnsupported].
func OpenDirect(fsys FS, name string) (DirectFile, error) {
	if d, ok := fsys.(interface {
		OpenDirect(name string) (DirectFile, error)
	}); ok {
		return d.OpenDirect(name)
	}
	return nil, errors.ErrUnsupported
}

// missingStep is how far apart the pages are that [Missing] asks about. It is no multiple of what systems read ahead, or drop, at once.
const missingStep = 67 * 4 << 10

// Missing returns about how many of the bytes [off, off+n) of a map are not in memory, and reads none. The page at three quarters of every
// 268 KiB tells: what only the beginnings of records were read of is missing. Where the system does not say, known is false.
func Missing(m Mapping, off, n int64) (bytes int64, known bool) {
	for end := off + n; off < end; off += missingStep {
		part := min(missingStep, end-off)
		in, known := Resident(m, off+part*3/4)
		if !known {
			return 0, false
		}
		if !in {
			bytes += part
		}
	}
	return bytes, true
}

// Resident reports whether the page at off of a map is in memory, and does not read it. Where the system does not say, known is false.
func Resident(m Mapping, off int64) (yes, known bool) {
	if look, ok := m.(interface {
		Resident(off int64) (yes, known bool)
	}); ok {
		return look.Resident(off)
	}
	return false, false
}
