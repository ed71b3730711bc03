package db

import (
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

var (
	// ErrCorrupt is what damage on disk answers to errors.Is; errors.As with a *CorruptError gives file and offset.
	ErrCorrupt = damage.ErrCorrupt
	// ErrNoSpace is returned when a put would exceed the budget, the free-space reserve or the disk, and nothing more
	// can be evicted.
	ErrNoSpace = vfs.ErrNoSpace
	// ErrPoisoned is returned by everything that writes, and by Close, once an fsync has failed, or a write that could not be
	// undone. Reads go on. Close the store and open it again: that recovers what was acknowledged.
	ErrPoisoned = vfs.ErrPoisoned
	// ErrLocked is returned by Open when the store is open already; the message names the pid.
	ErrLocked = vfs.ErrLocked
	// ErrClosed is returned by every operation after Close.
	ErrClosed = errors.New("store is closed")
	// ErrSuspended is returned by every operation between Suspend and Resume. A store whose index is found damaged, and cannot be
	// rebuilt just now, for want of room or file handles, say, suspends itself.
	ErrSuspended = errors.New("store is suspended")
	// ErrGone is returned by admin.Planes (package db/admin) of a record that was deleted, evicted or moved meanwhile, by this process or by one that writes.
	ErrGone = segments.ErrDestroyed
	// ErrReadOnly is returned by operations that would write to a store that was opened read-only.
	ErrReadOnly = folder.ErrReadOnly
	// ErrLeased is returned by Close while a match is open.
	ErrLeased = errors.New("a match is still open")
	// ErrMatchClosed is returned by every method of a match after its Close, but by Close itself.
	ErrMatchClosed = errors.New("match is closed")
	// ErrNotStored is returned when an operation needs a prefix that is not in the store: a put whose rows start behind
	// it, a ref to it.
	ErrNotStored = kv.ErrNotStored
	// ErrNotFound is returned when a named ref, a model's fingerprint, or a session, is not in the store.
	ErrNotFound = engine.ErrNotFound
	// ErrRetired is returned by a model handle after its fingerprint was retired.
	ErrRetired = catalog.ErrRetired
	// ErrLimit is returned where a model, ref or note is larger than its Max constant, or there are too many: [MaxModels], [MaxHeadBytes] and
	// so on. The message says size and limit.
	ErrLimit = catalog.ErrLimit
	// ErrNotDestroyed is returned by Sync, Delete, DeleteScope, Retire, Checkpoint, Compact, Pressure, Suspend and Close when some of what was
	// deleted or replaced could not be destroyed, in a file that cannot be opened or written just now, say. All else is done, and what
	// was deleted is not found any more. The next one of these tries again.
	ErrNotDestroyed = engine.ErrNotDestroyed
	// ErrNotMoved is returned by Compact when a segment keeps live records that were to be moved: it cannot be opened just now, say. All
	// else is done.
	ErrNotMoved = engine.ErrNotMoved
	// ErrNoBarrier is returned by Delete, DeleteScope and Retire, together with ErrNoSpace, when the full disk has no room for the frame
	// of the log that says up to where all is durable. What [Deleted] counts is deleted, and
	// durable; its bytes are destroyed when there is room.
	ErrNoBarrier = engine.ErrNoBarrier
	// ErrIndexDamaged is returned, together with [ErrCorrupt], by a call that finds the index damaged. The store rebuilds it in the background as soon
	// as the calls under way have ended. Make the call again: it waits for the rebuild, or until its ctx ends. A call from a callback of another
	// call keeps the rebuild waiting: it gets the error again. A [Match] returns no error: it is a miss whose [Reason] is [Damaged].
	ErrIndexDamaged = index.ErrDamaged
	// ErrForeign is returned by Open and Resume where a file has one of the store's names and is another store's or program's: the message
	// names it. Nothing is changed. Move the file away.
	ErrForeign = vfs.ErrForeign
	// ErrNotEmpty is returned by Open for a directory that has files but no store in it; the message names one. Nothing is changed.
	ErrNotEmpty = folder.ErrNotEmpty
	// ErrVersion is returned by Open, Verify and Repair for a store of another version of the format: a newer release wrote it, or an
	// older one. Nothing is changed; docs/compatibility.md says what to do.
	ErrVersion = vfs.ErrVersion
	// ErrSessionOpen is returned by OpenSession while the scope's session is open in this process.
	ErrSessionOpen = engine.ErrSessionOpen
	// ErrSessionClosed is returned by every method of a session after its Close, but by Close itself.
	ErrSessionClosed = engine.ErrSessionClosed
	// ErrStale is returned by every method of a session whose file another process has changed, or removed, while the store was suspended.
	// Close it and open it again.
	ErrStale = engine.ErrStale
	// ErrUnsafeDir is returned by Open for a directory, or a file of the store in it, that group or others can write to or that is another
	// user's. Options.AllowSharedDir accepts it.
	ErrUnsafeDir = folder.ErrUnsafeDir
)

// CorruptError is damage at one place of one file:
//
//	type CorruptError struct {
//		File     string
//		Offset   int64
//		What     string // the thing that is damaged: "record header", "plane of layer 3 K"
//		Expected string // empty if unknown
//		Found    string
//		Err      error // the cause, if another error
//	}
//
// Its Error says all of that; errors.Is finds [ErrCorrupt] and the cause.
type CorruptError = damage.Error

// PendingError is returned by Sync when deleted bytes are still in a file because a lease can see them: an open match, or a Verify, which also keeps what
// lies in the segment that it is at.
type PendingError struct {
	Records  int
	Bytes    int64 // of the records
	Segments int   // of a retired model, or wholly dead, that wait to be unlinked
	Leases   int
}

func (e *PendingError) Error() string {
	return fmt.Sprintf("%s (%s) and %s wait for %s",
		damage.Count(e.Records, "deleted record"), damage.Count(e.Bytes, "byte"), damage.Count(e.Segments, "segment"), damage.Count(e.Leases, "open lease"))
}

// NotStoredError says from which position on a prefix is missing:
//
//	type NotStoredError struct {
//		Stored int // tokens of the prefix that are in the store
//		Needed int // tokens that the operation needs
//		Reason Reason
//	}
//
// It answers errors.Is(err, [ErrNotStored]).
type NotStoredError = kv.NotStoredError
