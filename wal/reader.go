package wal

import (
	"errors"
	"fmt"
	"io"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// windowBytes is read at a time.
const windowBytes = 256 << 10

// reader reads one log file through a window. A block that cannot be read is zeros to whoever asks. It must not be taken for
// what the log holds: err says so, or unreadable of a lenient reader, which goes on behind it.
type reader struct {
	f       vfs.File
	name    string
	size    int64
	lenient bool // goes on behind what cannot be read

	buf        []byte // the window: the bytes from at on
	at         int64
	err        error // of the first read that failed, or ErrVersion of the first frame of another release; nothing is read any more
	unreadable []*damage.Error
	badEnd     int64 // end of the last unreadable block
}

func openReader(o Options, name string, lenient bool) (*reader, error) {
	f, err := o.FS.Open(name, true)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &reader{f: f, name: name, size: info.Size, lenient: lenient}, nil
}

// window returns the bytes from off on, at least least and as many as it has. off+least must be within the file. The bytes
// are valid until the next call.
func (r *reader) window(off, least int64) []byte {
	if off < r.at || off+least > r.at+int64(len(r.buf)) {
		n := max(least, windowBytes)
		n = min(n, r.size-off)
		if int64(cap(r.buf)) < n || (n <= windowBytes && cap(r.buf) > 4*windowBytes) {
			r.buf = make([]byte, n)
		}
		r.buf, r.at = r.buf[:n], off
		r.fill(r.buf, off)
	}
	return r.buf[off-r.at:]
}

// fill reads b from off. What cannot be read becomes zeros.
func (r *reader) fill(b []byte, off int64) {
	if r.err != nil {
		clear(b)
		return
	}
	n, err := r.f.ReadAt(b, off)
	if err == nil || err == io.EOF {
		clear(b[n:]) // the file got shorter
		return
	}
	for len(b) > 0 {
		k := blockBytes - int(off%blockBytes)
		k = min(k, len(b))
		n, err := r.f.ReadAt(b[:k], off)
		if n < k {
			clear(b[n:k])
			if err != nil && err != io.EOF {
				r.missed(off, int64(k), err)
			}
		}
		b, off = b[k:], off+int64(k)
	}
}

// missed remembers one error for a run of unreadable blocks. Reading goes forward, but for a second look at bytes that
// are counted already. An error that says nothing about the bytes is no damage: it ends the reading in any case.
func (r *reader) missed(off, n int64, err error) {
	switch {
	case r.err != nil:
		return
	case vfs.Passing(err):
		r.err = fmt.Errorf("%s: offset %d: %w", r.name, off, err)
		return
	case !r.lenient:
		r.err = damage.Wrap(r.name, off, "block (unreadable)", err)
		return
	}
	if off > r.badEnd || len(r.unreadable) == 0 {
		r.unreadable = append(r.unreadable, damage.Wrap(r.name, off, "block (unreadable)", err))
	}
	r.badEnd = max(r.badEnd, off+n)
}

// nonzero returns the offset of the first byte at off or behind it that is not zero, or -1.
func (r *reader) nonzero(off int64) int64 {
	for off < r.size {
		b := r.window(off, 1)
		if i := vfs.FirstNonZero(b); i >= 0 {
			return off + int64(i)
		}
		off += int64(len(b))
	}
	return -1
}

func (r *reader) Close() error { return r.f.Close() }
