package recovery

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// openIndex opens index.db, or begins a new one if it must be rebuilt: it is missing, damaged, or of another generation than the log.
// Another store's is an error; a reader does without it.
func (r *run) openIndex() error {
	if r.Doubt != nil {
		r.Rebuilt, r.Doubts = true, append(r.Doubts, r.Doubt)
	} else if err := r.openOld(); err != nil {
		return err
	}
	if r.Index != nil {
		if why := r.gap(); why != nil {
			r.doubt(why)
			r.Index.Close()
			r.Index = nil
		}
	}
	if r.Rebuilt {
		return r.beginNew()
	}
	return nil
}

// doubt notes why index.db is not used.
func (r *run) doubt(why error) {
	r.Rebuilt = true
	r.Doubts = append(r.Doubts, why)
	r.Logger.Warn("index will be rebuilt", "dir", r.Dir, "why", why)
}

// openOld opens the index.db that is there, unless that is in doubt.
func (r *run) openOld() error {
	ix, err := index.Open(r.IndexOptions)
	switch {
	case err == nil:
		r.Index, r.Applied = ix, ix.Applied()
		return r.headOfAnotherRelease() // before anything is changed
	case errors.Is(err, index.ErrMissing):
		r.Rebuilt = true
		if len(r.Log.Frames) > 0 || r.Segments.MaxID() > 0 {
			r.doubt(err)
		}
	case errors.Is(err, index.ErrForeign) && !r.ReadOnly:
		return err // another store's, or another program's: not ours to replace
	case errors.Is(err, index.ErrForeign), errors.Is(err, index.ErrVersion), errors.Is(err, damage.ErrCorrupt), errors.Is(err, index.ErrDamaged), errors.Is(err, vfs.ErrNotRegular):
		r.doubt(err)
	default:
		return err
	}
	return nil
}

// beginNew makes the index that is built from segments and log. It keeps the numbers of the old one, and its copy of the log's head.
func (r *run) beginNew() (err error) {
	r.Applied.LSN = 0
	if r.ReadOnly {
		r.Index = index.Memory()
		return nil
	}
	// The numbers of log frames may begin anew: an old filter must not be taken for one that covers them.
	if err := r.FS.Remove(r.Bloom); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, vfs.ErrNotRegular) {
		return err
	}
	// If this rebuild does not come to its end, the next one needs what only the old index knew: refs, and what was deleted and
	// is not yet destroyed. It names no log file: an index that was never written is rebuilt.
	left := r.Applied
	left.WALFile = 0
	// FORMAT first: an earlier process may not have come to sync its name, and an index beside none is somebody else's.
	if err := r.FS.SyncDir(r.Dir); err != nil {
		return err
	}
	r.Index, err = index.Create(r.IndexOptions, left)
	return err
}

// headOfAnotherRelease returns an error if the index's copy of the log head was written by another release: without it, what was deleted
// would be back.
func (r *run) headOfAnotherRelease() error {
	if len(r.Applied.Extra) == 0 {
		return nil
	}
	if _, err := ReadHead(r.Applied.Extra); errors.Is(err, vfs.ErrVersion) {
		return fmt.Errorf("%s: copy of the log head: %w", r.IndexOptions.Path, err)
	}
	return nil
}

// gap says why the index and the log do not fit together; nil if they do. A log that is not there at all is damage, since no
// checkpoint takes its last file: what was said after the checkpoint, deletions too, is lost.
func (r *run) gap() error {
	if r.Applied.WALFile == 0 && r.Segments.MaxID() > 0 && (!r.Log.HasFirst || r.Log.First.Next.Segment > 1) {
		return errors.New("it was never written, and the log does not go back to the first segment")
	}
	if len(r.Log.Files) == 0 {
		if r.Applied.LSN == 0 {
			return nil
		}
		return damage.New(r.LogOptions.Dir, 0, "log", fmt.Sprintf("files that go on behind frame %d, as the index does", r.Applied.LSN), "none")
	}
	first := r.Log.Files[0].FirstLSN
	switch {
	case len(r.Log.Damage) > 0:
		return fmt.Errorf("the log is damaged: %v", r.Log.Damage[0]) // of which Verify reports each
	case r.Log.Damaged():
		return errors.New("the log ends in a torn frame")
	case first > r.Applied.LSN+1:
		return fmt.Errorf("it ends at frame %d, the log begins at %d", r.Applied.LSN, first)
	case r.Applied.LSN > r.Log.LastLSN:
		if r.Salvage { // the index says what became of all that this log says
			r.Log = &Log{Recovered: r.Log.Recovered}
		}
		return fmt.Errorf("it has frame %d, the log ends at %d", r.Applied.LSN, r.Log.LastLSN)
	}
	return nil
}
