package sessions

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/dormousekv/dormouse/internal/vfs"
)

var (
	// ErrDeleted is returned by a file that was removed while it was open.
	ErrDeleted = errors.New("session was deleted")
	// ErrClosed is returned by a file after its Close.
	ErrClosed = errors.New("session is closed")
	// ErrPoisoned is returned by what writes to a file after a write or an fsync that failed, together with that error.
	ErrPoisoned = vfs.ErrPoisoned
	// ErrTooLarge is returned for a body that is longer than MaxBody.
	ErrTooLarge = errors.New("frame of a session is too large")
	// ErrKind is returned for a frame of kind 0.
	ErrKind = errors.New("kind of a frame is 0: expected 1 to 255")
)

// Options say where the files are and whose.
type Options struct {
	FS   vfs.FS   // nil: the operating system
	Dir  string   // the folder of the files; it must exist for Create
	UUID [16]byte // of the store

	// Poisoned, if not nil, is called with what an fsync has failed with: memory may hold pages for clean that the disk never got. It must not
	// call the file's methods.
	Poisoned func(err error)
	// Grew, if not nil, is told by how many bytes the disk blocks of a file have become more.
	Grew func(bytes int64)

	Logger *slog.Logger // nil means none
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Poisoned == nil {
		o.Poisoned = func(error) {}
	}
	if o.Grew == nil {
		o.Grew = func(int64) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Path is that of a scope's file.
func (o Options) Path(scope [16]byte) string { return filepath.Join(o.Dir, Name(scope)) }

// sync is f.Sync that says when it failed.
func (o Options) sync(f vfs.File) error {
	err := f.Sync()
	if err != nil {
		o.Poisoned(err)
	}
	return err
}

// syncDir makes the names in the folder durable.
func (o Options) syncDir() error {
	err := o.FS.SyncDir(o.Dir)
	if err != nil && !errors.Is(err, vfs.ErrNotSynced) && !errors.Is(err, fs.ErrNotExist) {
		o.Poisoned(err)
	}
	return err
}

// SyncNames makes the names in the folder durable.
func SyncNames(o Options) error { return o.withDefaults().syncDir() }

func (o Options) ours(head []byte) bool { return isOurs(head, o.UUID) }
