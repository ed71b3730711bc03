package recovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/wal"
)

// Input is what there is.
type Input struct {
	FS       vfs.FS
	Dir      string        // of the store
	Segments *segments.Set // open; its ids are raised above all that were ever given
	Bloom    string        // path of the Bloom filter's file, which goes with an index that is built anew
	Hasher   kv.Hasher
	Unsynced bool // an fsync had failed: what is in memory need not be on the disk
	ReadOnly bool
	Salvage  bool                          // of Repair: frames of the log that make no sense are damage, and no error
	Doubt    error                         // why index.db is not to be used; nil: it is looked at
	Copied   func() (same bool, err error) // of Beside: whether index.db is still what its copy is
	Logger   *slog.Logger

	IndexOptions index.Options
	LogOptions   wal.Options

	Rank     func(x index.Entry, clock uint64) uint64 // the order in which a block is evicted that was put at that time
	AddKey   func(kv.Key)                             // gets what a Bloom filter must have that may be older than the log; may be nil
	Progress func(done, total int64)                  // of a rebuild; may be nil
}

// Result is what the store is. The index is the caller's to close, also of an error.
type Result struct {
	Index   *index.Index
	Catalog *catalog.Catalog // with the tombstones that are still to be destroyed
	Log     *Log
	Applied index.Applied // what index.db had when it was opened; where it is built anew, the numbers that it gave

	Seq, Clock uint64           // the last that were given
	Leftover   []Leftover       // segments that an earlier process did not seal
	Listed     map[loc.Loc]bool // what the next log head must list as dead: what was taken out, and older copies of what stays
	Found      map[loc.Loc]bool // dead, as the scan or the replay found out
	Doubts     []error          // why index.db was not used, if it is there
	Absent     []index.Entry    // records that the log names and that are not there
	Lost       []index.Entry    // records that no barrier covers and that are not whole: the disk never had them, or they are damaged
	Left       []index.Entry    // records that are there and left out: a part of them, their prefix, or the descriptor of their model is lost
	Damage     []*damage.Error  // that a rebuild met in segments, and bytes behind zeros: records may have been there of which nothing tells
	Rebuilt    bool             // the index is built from segments and log alone
	Changed    bool             // something was recovered that a checkpoint should keep
}

// Named is what the index, or the log, says of a record.
type Named struct {
	Key    kv.Key
	Tokens int
}

// Leftover is a segment that an earlier process was writing to, and that is not gone on with. What the index does not name from From on is a
// tombstone; no record lies behind End, which is 0 if nothing ever lay there. Torn: there is something else than records and zeros.
type Leftover struct {
	ID        uint64
	From, End int64
	Torn      bool
}

// Adopt replaces the catalog by that of a log head, with what that still had to destroy. What an earlier head lists and this one does not
// was destroyed, or is alive again because a power cut took what stood in its place. What was found dead stays on the list.
func (r *Result) Adopt(head *oplog.Snapshot, at catalog.Place) {
	c := catalog.Of(head, at)
	for l := range r.Found {
		if !c.IsTombstone(l) {
			c.BuryAt(l)
		}
	}
	if r.Catalog.Behind() {
		c.Unlink(true)
	}
	r.Catalog = c
}

// Retired reports whether the log says that a model was retired; its segments may still be there.
func (r *Result) Retired(set *segments.Set, fp kv.Fingerprint) bool {
	if r.Log.Retired(fp) {
		return true
	}
	for _, id := range r.Catalog.Unlinked() {
		if d, err := set.Descriptor(id); err == nil && d.Fingerprint() == fp {
			return true
		}
	}
	return false
}

// run is a recovery under way: it brings the index and the catalog to the end of the log.
type run struct {
	Input
	Result

	scanned  map[loc.Loc]bool         // records that the scan found, in a rebuild
	files    map[uint64]segments.Info // once something is lost
	partial  []index.Entry            // those of them that no frame names and that are not whole
	logged   map[loc.Loc]index.Entry  // those of them that the log enters
	named    Names                    // for a rebuild
	arrivals map[loc.Loc]*arrival     // what the replay entered
	scanSeq  uint64                   // the highest sequence number that the scan found
	fromScan map[kv.Fingerprint]kv.Descriptor
	fromLog  map[kv.Fingerprint]kv.Descriptor
	unranked map[kv.Key]struct{} // blocks whose class may be another one now
	lsn      uint64              // of the frame that is being replayed
}

func newRun(in Input) *run {
	return &run{Input: in, Result: Result{Catalog: catalog.New(), Listed: map[loc.Loc]bool{}, Found: map[loc.Loc]bool{}}}
}

// Run recovers a store. The error is a damage.Error with file and offset where the log cannot be done without, vfs.ErrVersion where another
// release wrote it, ErrDamaged of package index where index.db turned out to be damaged on the way: then Run with that as Doubt builds it
// anew.
func Run(ctx context.Context, in Input) (Result, error) {
	r := newRun(in)
	err := r.run(ctx)
	return r.Result, err
}

func (r *run) run(ctx context.Context) (err error) {
	if r.Doubt != nil {
		r.Rebuilt, r.Doubts = true, append(r.Doubts, r.Doubt)
	}
	if r.Log, err = ReadLog(r.LogOptions); err != nil {
		return err
	}
	if r.Salvage {
		r.Log.salvage()
	}
	for _, f := range r.Log.Frames {
		if f.Err != nil { // nothing is changed yet
			return f.Err
		}
	}
	if err := r.openIndex(); err != nil {
		return err
	}
	if r.Rebuilt {
		if err := r.enterSegments(ctx); err != nil {
			return err
		}
	}
	r.numbers()
	if err := r.apply(); err != nil {
		return err
	}
	if r.Rebuilt {
		if err := r.dropOrphans(); err != nil {
			return err
		}
		if err := r.dropUnnamed(); err != nil {
			return err
		}
	}
	return r.sweep(ctx)
}

// openIndex opens index.db, or decides that it must be rebuilt: it is missing, damaged, or of another generation than the log. Another
// store's is an error; a reader does without it.
func (r *run) openIndex() error {
	doubt := func(why error) {
		r.Rebuilt = true
		r.Doubts = append(r.Doubts, why)
		r.Logger.Warn("index will be rebuilt", "dir", r.Dir, "why", why)
	}
	if !r.Rebuilt {
		ix, err := index.Open(r.IndexOptions)
		switch {
		case err == nil:
			r.Index, r.Applied = ix, ix.Applied()
			if err := r.headOfAnotherRelease(); err != nil { // before anything is changed
				return err
			}
		case errors.Is(err, index.ErrMissing):
			r.Rebuilt = true
			if len(r.Log.Frames) > 0 || r.Segments.MaxID() > 0 {
				doubt(err)
			}
		case errors.Is(err, index.ErrForeign) && !r.ReadOnly:
			return err // another store's, or another program's: not ours to replace
		case errors.Is(err, index.ErrForeign), errors.Is(err, index.ErrVersion), errors.Is(err, damage.ErrCorrupt), errors.Is(err, index.ErrDamaged), errors.Is(err, vfs.ErrNotRegular):
			doubt(err)
		default:
			return err
		}
	}
	if r.Index != nil {
		if why := r.gap(); why != nil {
			doubt(why)
			r.Index.Close()
			r.Index = nil
		}
	}
	if !r.Rebuilt {
		return nil
	}
	var err error
	extra := r.Applied
	r.Applied = index.Applied{LSN: 0, WALFile: extra.WALFile, Extra: extra.Extra, Clock: extra.Clock, NextSeq: extra.NextSeq, NextSegment: extra.NextSegment}
	if r.ReadOnly {
		r.Index = index.Memory()
		return nil
	}
	// The numbers of log frames may begin anew: an old filter must not be taken for one that covers them.
	if err := r.FS.Remove(r.Bloom); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, vfs.ErrNotRegular) {
		return err
	}
	// Should this rebuild not come to its end, the next one needs what only the old index knew: refs, and what was deleted and
	// is not yet destroyed. No log file is named: an index that was never written is rebuilt.
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

// numbers makes sure that none is given twice.
func (r *run) numbers() {
	seq := max(r.Applied.NextSeq, r.Log.First.Next.Seq)
	clock := max(r.Applied.Clock, r.Log.First.Next.Clock)
	for _, f := range r.Log.Frames {
		switch op := f.Op.(type) {
		case oplog.Snapshot:
			seq, clock = max(seq, op.Next.Seq), max(clock, op.Next.Clock)
			if op.Next.Segment > 0 {
				r.Segments.RaiseID(op.Next.Segment - 1)
			}
		case oplog.Put:
			for _, x := range op.Records {
				seq = max(seq, x.Seq+1)
				r.Segments.RaiseID(x.Loc.Segment)
			}
		case oplog.Remove: // the numbers of records that were never published, and of sessions, may be in no other frame
			seq = max(seq, op.Seq+1)
		case oplog.Model:
			clock = max(clock, op.Stamp) // uses before it made the clock go on, and are in no frame
		case oplog.Retire: // a segment in which nothing was ever named is unlinked by its number, too
			for _, id := range op.Segments {
				r.Segments.RaiseID(id)
			}
		case oplog.Move:
			seq = max(seq, op.Seq+1)
			r.Segments.RaiseID(op.To.Segment)
		}
	}
	if r.Applied.NextSegment > 0 {
		r.Segments.RaiseID(r.Applied.NextSegment - 1)
	}
	seq = max(seq, r.scanSeq+1)
	r.Seq, r.Clock = max(seq, 1)-1, max(clock, seq)
}
