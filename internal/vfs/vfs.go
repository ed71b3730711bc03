package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// ErrNoSpace is returned when the file system, or the user's quota on it, is full.
var ErrNoSpace = errors.New("no space left on the file system")

// ErrPoisoned is what every write answers after a failed fsync, or after a failed write that could not be undone.
var ErrPoisoned = errors.New("no more writes after one that failed: close and open again")

// ErrNotRegular is returned by Open for a folder, a link, a pipe or a device.
var ErrNotRegular = errors.New("not a regular file")

// ErrNotSynced is returned by SyncDir where the folder could not be opened: no fsync was tried, so that a later one may do it.
var ErrNotSynced = errors.New("not synced")

// ErrForeign is returned where a file that has one of our names is somebody else's. Such a file is neither changed nor removed.
var ErrForeign = errors.New("file of another store or program")

// ErrVersion is returned for what another release has written, and this one has no meaning for.
var ErrVersion = errors.New("store format is not supported")

// ErrLocked is returned when another open file description holds the lock.
var ErrLocked = errors.New("locked by another process")

// FS is a file system. Names are full paths. Implementations are safe for concurrent use.
type FS interface {
	// Create makes a new file of mode 0600, open for reading and writing; it fails with fs.ErrExist if there is one.
	Create(name string) (File, error)
	// Open opens an existing regular file; links are not followed. Read-write unless readOnly.
	Open(name string, readOnly bool) (File, error)
	Rename(old, new string) error
	// Remove removes a file or a link, never a folder, not even an empty one.
	Remove(name string) error
	// Mkdir makes a directory of mode 0700; an existing one is fine.
	Mkdir(name string) error
	// List returns the names in a directory, sorted, but for those that systems put there ([SystemName]); none if there is no directory.
	List(dir string) ([]string, error)
	Stat(name string) (Info, error)
	// SyncDir makes creations, renames and removals in dir durable. After an error that is not ErrNotSynced, what holds for a
	// failed Sync of a file holds for these.
	SyncDir(dir string) error
	// Space returns the bytes that are free to this user on the file system that holds dir, and what it takes and gives back at a time.
	Space(dir string) (free uint64, blockBytes int, err error)
}

// Info is what Stat knows about a file.
type Info struct {
	Size      int64
	Allocated int64 // bytes of the blocks it occupies, holes left out
	Dir       bool
	Regular   bool // neither a directory, a link nor a device
	Link      bool
	Changed   time.Time // when its bytes were last written; zero if that is not known
}

// File is an open file, safe for concurrent use.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Name() string
	Stat() (Info, error)
	// Sync makes the contents, and the metadata needed to read them, durable. After it failed once, nothing that was
	// written can be relied on, whatever a second call says.
	Sync() error
	Truncate(size int64) error
	// Allocate reserves space for [off, off+n) without changing what can be read there; the file grows as needed.
	// It returns ErrNoSpace where the reservation fails, and only grows the file on systems that cannot reserve.
	Allocate(off, n int64) error
	// Punch makes [off, off+n) read as zeros. freed says whether the file system has all of the space back, if the range is whole blocks (FS.Space).
	Punch(off, n int64) (freed bool, err error)
	// Map maps the first size bytes for reading. Reads beyond the end of the file fault: see Guard.
	Map(size int64) (Mapping, error)
}

// Mapping is a read-only map of a file. Its bytes are valid until Close.
type Mapping interface {
	Bytes() []byte
	// WillNeed asks for [off, off+n) to be read ahead; a hint, without effect where the system has none.
	WillNeed(off, n int64)
	// DontNeed drops [off, off+n) from this map; the bytes are read again when touched.
	DontNeed(off, n int64)
	Close() error
}

// TooLargeError says that a file which should be small is not.
type TooLargeError struct {
	Name        string
	Size, Limit int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s: %d bytes, at most %d expected", e.Name, e.Size, e.Limit)
}

// ReadAll reads a whole small file, refusing one that is larger than limit bytes.
func ReadAll(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name, true)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size > limit {
		return nil, &TooLargeError{Name: name, Size: info.Size, Limit: limit}
	}
	b := make([]byte, info.Size)
	if n, err := f.ReadAt(b, 0); n < len(b) { // a whole read may come with io.EOF
		return nil, err
	}
	return b, nil
}

// headBytes is what a power cut takes or leaves as a whole: a sector.
const headBytes = 512

// Head reads the first bytes of a regular file: 512, or all if it has fewer.
func Head(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name, true)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, headBytes)
	n, err := f.ReadAt(b, 0)
	if err == io.EOF {
		err = nil
	}
	return b[:n], err
}

// Blank reports whether b, the head of a file, say, holds nothing. A file of ours that begins so is one that was not written yet, or whose
// beginning a power cut took.
func Blank(b []byte) bool { return FirstNonZero(b) < 0 }

// FirstNonZero returns the index of the first byte of b that is not zero, or -1.
func FirstNonZero(b []byte) int {
	base := 0
	for len(b) > 0 {
		n := min(len(b), len(zeros))
		if !bytes.Equal(b[:n], zeros[:n]) {
			return base + slices.IndexFunc(b[:n], func(c byte) bool { return c != 0 })
		}
		b, base = b[n:], base+n
	}
	return -1
}

var zeros [4 << 10]byte

// Begins reports whether a file with that head may be one that begins with mark, though a power cut took a part of its first sector.
func Begins(head []byte, mark string) bool {
	return bytes.HasPrefix(head, []byte(mark)) || Blank(head[:min(16, len(head))]) || strings.HasPrefix(mark, string(bytes.TrimRight(head, "\x00")))
}

// WriteAtomic replaces name by b: it writes name+".tmp", syncs, renames, and syncs the directory. What an earlier try left under the
// temporary name is removed: a file that is blank, or whose head ours accepts. Anything else there is ErrForeign.
func WriteAtomic(fsys FS, dir, name string, b []byte, ours func(head []byte) bool) (err error) {
	tmp := name + ".tmp"
	if err := RemoveOwn(fsys, tmp, ours); err != nil {
		return err
	}
	f, err := fsys.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err != nil {
		fsys.Remove(tmp)
		return err
	}
	return fsys.SyncDir(dir)
}

// RemoveOwn removes what has a name of ours, if there is something: a file that is blank, or whose head ours accepts, or a link, which
// leads to nothing of ours. Of anything else it returns ErrForeign.
func RemoveOwn(fsys FS, name string, ours func(head []byte) bool) error {
	err := CheckOwn(fsys, name, ours)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fsys.Remove(name)
}

// CheckOwn returns nil where RemoveOwn would remove something, and changes nothing. Where there is nothing, it returns fs.ErrNotExist.
func CheckOwn(fsys FS, name string, ours func(head []byte) bool) error {
	info, err := fsys.Stat(name)
	switch {
	case err != nil || info.Link:
		return err
	case info.Dir:
		return fmt.Errorf("%s: %w: it is a folder", name, ErrForeign)
	case !info.Regular:
		return fmt.Errorf("%s: %w: it is no regular file", name, ErrForeign)
	}
	head, err := Head(fsys, name)
	if err == nil && !Blank(head) && !ours(head) {
		err = fmt.Errorf("%s: %w: it begins with %q", name, ErrForeign, head[:min(16, len(head))])
	}
	return err
}
