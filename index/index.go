package index

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

var (
	// ErrMissing is returned when the file is not there.
	ErrMissing = errors.New("index: no such file")
	// ErrForeign is returned when the file belongs to another store or program. It is not changed.
	ErrForeign = vfs.ErrForeign
	// ErrVersion is returned when the file was written in a format that this program does not know.
	ErrVersion = errors.New("index: unknown format version")
	// ErrDamaged is returned when the file holds other bytes than were written. The index refuses all further use: close
	// it and rebuild it.
	ErrDamaged = errors.New("index: damaged, must be rebuilt")
	// ErrReadOnly is returned when a checkpoint or a compaction is asked of an index that may not write.
	ErrReadOnly = errors.New("index: read-only")
	// ErrClosed is returned when the index has been closed.
	ErrClosed = errors.New("index: closed")
)

// fail marks damage as reason for a rebuild.
func fail(err *damage.Error) error { return fmt.Errorf("%w: %w", ErrDamaged, err) }

// Options says where the index is and whose.
type Options struct {
	FS   vfs.FS // nil: the operating system. bbolt uses the operating system in any case, by the same names
	Path string // index.db
	UUID kv.UUID
	// Halted, if not nil, is called when a write has failed after which nothing more is written; it must not call the Index's methods.
	Halted   func()
	ReadOnly bool         // updates stay in memory; Checkpoint and Compact are refused
	Logger   *slog.Logger // nil: slog.Default
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Applied is the small state that a checkpoint records with the entries.
type Applied struct {
	LSN         uint64 // frames up to here are in the entries
	WALFile     uint64
	NextSeq     uint64
	NextSegment uint64
	Clock       uint64
	Extra       []byte // the caller's, at most MaxExtraBytes
}

// Index is the index of one store. Safe for concurrent use.
//
// Locks, in the order in which they are taken: keep, write, mu, and that of the file (boltFile.reading).
type Index struct {
	o       Options
	keep    lock.Mutex[lock.IndexKeep] // one Checkpoint, Compact or Verify at a time
	nameDue bool                       // guarded by keep: a new file has its name, and that is not durable yet
	unsaid  bool                       // guarded by keep: the last Checkpoint did all but that, and returned the error

	write lock.Mutex[lock.IndexWrite] // one Update or Freeze at a time
	edits uint64                      // guarded by write: numbers the edits of the treaps

	mu        lock.Mutex[lock.Index] // guards what follows, and is held for a few instructions only
	rows      layers
	counts    counters
	freezing  bool     // rows.frozen waits for a checkpoint, empty or not
	frozen    counters // counts at the freeze
	persisted counters // counts in the base
	applied   Applied
	closed    bool
}

// Close gives the index up. What was not checkpointed is gone from it. Views that are open stay valid; index.db closes with
// the last of them, or now.
func (ix *Index) Close() error {
	ix.keep.Lock()
	defer ix.keep.Unlock()
	ix.write.Lock()
	defer ix.write.Unlock()
	ix.mu.Lock()
	base := ix.rows.base
	ix.closed, ix.rows = true, layers{}
	ix.mu.Unlock()
	if base == nil {
		return nil
	}
	return base.release()
}

// Err is the error that every write returns since one has failed after which nothing is written any more; nil while all is well.
func (ix *Index) Err() error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.rows.base == nil {
		return nil
	}
	return ix.rows.base.file.halted.Err()
}

// Bytes is the space that index.db occupies.
func (ix *Index) Bytes() int64 {
	if ix.o.Path == "" {
		return 0
	}
	info, err := ix.o.FS.Stat(ix.o.Path)
	if err != nil {
		return 0
	}
	return info.Allocated
}

// Unwritten is by how many records the index has grown since its last checkpoint.
func (ix *Index) Unwritten() int64 {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	return max(0, ix.counts.total.Records-ix.persisted.total.Records)
}

// Memory returns an empty index without a file beneath it: for rebuilds of a read-only store, and for tests.
func Memory() *Index { return &Index{o: Options{ReadOnly: true}.withDefaults()} }

// Applied is what the last checkpoint recorded. Extra is shared: do not change it.
func (ix *Index) Applied() Applied {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	return ix.applied
}

// View returns the current version. It must be released.
func (ix *Index) View() *View {
	v := new(View)
	ix.Look(v)
	return v
}

// Trim lets go of the memory in which pages of index.db are mapped. They are read again when they are needed.
func (ix *Index) Trim() {
	v := ix.View()
	defer v.Release()
	if v.base != nil {
		v.base.file.m.DontNeed(0, int64(len(v.base.file.data)))
	}
}

// Look makes v, a zero View or one that was released, the current version. It must be released (again).
func (ix *Index) Look(v *View) {
	if v.ix != nil && !v.released.Load() {
		panic("index: a view that is in use is given another version")
	}
	v.ix, v.err, v.layers, v.counters = ix, nil, layers{}, counters{}
	v.released.Store(false)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.look(v)
}

// look lets v see the current version. Callers hold mu.
func (ix *Index) look(v *View) {
	if ix.closed {
		v.err = ErrClosed
		return
	}
	v.layers, v.counters = ix.rows, ix.counts
	if v.base != nil {
		v.base.acquire()
	}
}

// Begin begins a change of the index. Changes are made one at a time: whoever begins the next one waits until this one was published or
// ended. They never touch the disk but to read. The caller calls [Txn.End], and in between neither Update, Freeze, Checkpoint, Compact nor Verify.
func (ix *Index) Begin() (*Txn, error) {
	ix.write.Lock()
	ix.edits++
	t := &Txn{edit: ix.edits, open: true}
	t.View.ix = ix
	ix.mu.Lock()
	ix.look(&t.View)
	ix.mu.Unlock()
	err := t.err
	if err == nil && t.base != nil {
		err = t.base.file.writable()
	}
	if err != nil {
		t.End()
		return nil, err
	}
	return t, nil
}

// Update is a change that fn makes. After an error or a panic of fn nothing is changed.
func (ix *Index) Update(fn func(t *Txn) error) error {
	t, err := ix.Begin()
	if err != nil {
		return err
	}
	defer t.End()
	if err := fn(t); err != nil {
		return err
	}
	return t.Publish()
}

// Freeze ends the overlay that the next [Index.Checkpoint] will write: later updates go to a new one above it. Whoever
// appends to the log holds its lock here, so that the overlay ends with a known frame. If the checkpoint of an earlier
// freeze failed, the next one will write both.
func (ix *Index) Freeze() {
	ix.write.Lock()
	defer ix.write.Unlock()
	ix.edits++
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.freeze()
}

// freeze: callers hold write and mu.
func (ix *Index) freeze() {
	if ix.rows.frozen == nil {
		ix.rows.frozen = ix.rows.active
	} else {
		frozen := ix.rows.frozen
		ix.rows.active.walk(func(key, val []byte) bool {
			frozen = frozen.set(key, val, ix.edits)
			return true
		})
		ix.rows.frozen = frozen
	}
	ix.rows.active, ix.frozen, ix.freezing = nil, ix.counts, true
}
