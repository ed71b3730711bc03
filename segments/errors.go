package segments

import (
	"errors"

	"github.com/dormousekv/dormouse/internal/vfs"
)

var (
	// ErrDestroyed is returned when the header at a location is all zeros: the record was destroyed, or its write never
	// reached the disk.
	ErrDestroyed = errors.New("record was destroyed")

	// ErrMissing is returned when there is no file for a segment, or a folder or a link in its place. In a read it comes inside
	// a *damage.Error.
	ErrMissing = errors.New("segment file is missing")

	// ErrVersion is wrapped by damage whose bytes may be sound but need a newer program: an unknown format version,
	// record kind, cipher or flag, or a reserved byte.
	ErrVersion = errors.New("written by another release, in a version of the format that this one does not know")

	// ErrForeign is wrapped by the damage of a header that is sound and another store's. Such a file is never changed.
	ErrForeign = vfs.ErrForeign

	// ErrRemains is wrapped by what Scan and Verify report when bytes lie behind a zeroed or never written header: a
	// record that was torn by a crash before anybody relied on it, or one whose destruction a crash cut short. It
	// costs space, and may be deleted data, but nothing that is live is hurt.
	ErrRemains = errors.New("remains of a torn or destroyed record")

	// ErrBehind is returned by SealRecovered where a record lies behind the end that it was given.
	ErrBehind = errors.New("a record lies behind the end")

	// ErrLeased is returned by Close while leases are open or reads are under way.
	ErrLeased = errors.New("segments are in use")

	// ErrClosed is returned by every call after Close.
	ErrClosed = errors.New("segments are closed")

	// ErrReadOnly is returned when a read-only Set is asked to write.
	ErrReadOnly = errors.New("segments were opened read-only")

	// errRecord is returned when a record cannot be built: a broken span, too many tokens or planes, too many bytes.
	errRecord = errors.New("record cannot be stored")
)
