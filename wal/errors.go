package wal

import (
	"errors"

	"github.com/dormousekv/dormouse/internal/vfs"
)

var (
	// ErrForeign is returned when a log file carries the UUID of another store, or the names for the next one are all taken by others.
	ErrForeign = vfs.ErrForeign
	// errMagic is the cause in the damage of a header that does not even begin as one.
	errMagic = errors.New("not a log file")
	// ErrVersion says that a log file was written by a Dormouse whose format of the log is another: its version is, or features, or bytes
	// that this format leaves zero have a meaning there.
	ErrVersion = errors.New("unsupported log version")
	// errTooLarge is returned when a payload or a snapshot is longer than MaxPayload.
	errTooLarge = errors.New("log payload too large")
	// ErrClosed is returned when the log was closed.
	ErrClosed = errors.New("log is closed")
	// ErrPoisoned is returned by every write after a failed fsync, or after a failed write that could not be undone. The
	// store must be opened anew: only a replay tells what the file holds.
	ErrPoisoned = vfs.ErrPoisoned
	// ErrTorn is the cause in what [Verify] reports for bytes behind the last frame that nothing shows to have been
	// durable: a crash leaves such an end, so this alone is not damage.
	ErrTorn = errors.New("torn end of the log")
)
