package recovery

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// A reader beside a writer shows what the last checkpoint wrote, but for what was removed since. A deletion that returned holds for whoever
// opens the store afterwards, though the writer has made no checkpoint, and cannot destroy the bytes that its open matches see.
//
// The log behind the checkpoint is replayed as any other is. Then all that it put is taken out again, as if a power cut had taken it, and what that
// had replaced comes back. What remains is what the checkpoint wrote, where it lay then, without what was deleted, retired or evicted since. Evictions
// count, too: a deletion names what is stored, so it does not name the longer block that stood in the place of a stored one, and was evicted
// before. To follow keys alone would miss that.
//
// Models, refs and notes are those of the log's end. A name that was set anew shows what it says now: what it said before may be deleted.

// ErrWritten is returned where index.db and the log do not fit together, or the log does not look whole, which the writer may have caused
// between two looks. If it stays so, the store is damaged, and nothing is known of what was deleted.
type ErrWritten struct{ Err error }

func (e *ErrWritten) Error() string {
	return fmt.Sprintf("the store is open in a process that writes, and what was deleted since its last checkpoint cannot be read: %v", e.Err)
}

func (e *ErrWritten) Unwrap() error { return e.Err }

// Beside recovers a store that another process writes to. index.db is a copy that was taken before. An [*ErrWritten] says to take another one
// and to look again.
func Beside(in Input) (Result, error) {
	r := newRun(in)
	err := r.beside()
	return r.Result, err
}

func (r *run) beside() error {
	r.Log, r.AddKey = &Log{}, nil // no Bloom filter is used
	ix, err := index.Open(r.IndexOptions)
	switch {
	case errors.Is(err, index.ErrMissing): // the writer has made no checkpoint yet
		ix = index.Memory()
	case err != nil:
		return fmt.Errorf("the store is open in a process that writes, and what its last checkpoint wrote cannot be read: %w", err)
	}
	r.Index, r.Applied = ix, ix.Applied()
	if len(r.Applied.Extra) > 0 {
		head, err := ReadHead(r.Applied.Extra)
		if verr := r.headOfAnotherRelease(); verr != nil {
			return verr
		}
		if err != nil {
			return damage.Wrap(r.IndexOptions.Path, 0, "copy of the log head", err)
		}
		r.Adopt(&head, catalog.Place{File: r.IndexOptions.Path})
		r.Log.First, r.Log.HasFirst = head, true
	}
	log, err := r.removals()
	if err != nil {
		return err
	}
	if err := r.withdraw(log); err != nil {
		return err
	}
	r.Catalog.DropStrayNotes()
	r.numbers()
	return nil
}

// removals reads the log that goes on behind the index.
func (r *run) removals() (*Log, error) {
	o := r.LogOptions
	o.Logger = slog.New(slog.DiscardHandler) // of what the writer changes meanwhile
	log, err := ReadLog(o)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, damage.ErrCorrupt):
		return nil, &ErrWritten{err}
	case err != nil:
		return nil, err
	case len(log.Damage) > 0:
		return nil, &ErrWritten{log.Damage[0]}
	}
	for _, f := range log.Frames {
		if f.Err != nil && f.LSN > r.Applied.LSN {
			return nil, f.Err
		}
	}
	// A checkpoint writes index.db before it makes a new file of an old one. If it did since the copy was taken, what was read may have had an end
	// too early.
	switch same, err := r.Copied(); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case !same || err != nil:
		return nil, &ErrWritten{fmt.Errorf("%s: it changed all the time: %w", r.IndexOptions.Path, vfs.ErrLocked)}
	}
	if r.Applied.WALFile == 0 { // it was never written: nothing is in it
		return log, nil
	}
	first := log.LastLSN + 1
	if len(log.Files) > 0 {
		first = log.Files[0].FirstLSN
	}
	if first > r.Applied.LSN+1 || r.Applied.LSN > log.LastLSN {
		found := "none"
		if len(log.Files) > 0 {
			found = fmt.Sprintf("frames %d to %d", first, log.LastLSN)
		}
		return nil, &ErrWritten{damage.New(r.LogOptions.Dir, 0, "log", fmt.Sprintf("files that go on behind frame %d, as the index does", r.Applied.LSN), found)}
	}
	return log, nil
}

// withdraw takes out what was removed behind the checkpoint.
func (r *run) withdraw(log *Log) error {
	return r.Index.Update(func(t *index.Txn) error {
		for _, f := range log.Frames {
			if f.Err != nil {
				continue // the index has it
			}
			if err := r.frame(t, f); err != nil {
				return err
			}
		}
		put, err := r.arrivals.entered(t)
		if err != nil {
			return err
		}
		_, err = r.takeBack(t, upwards(put), nil, func(_ index.Entry, p *arrival) (bool, error) { return !p.synced, nil })
		return err
	})
}
