package recovery

import (
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

// Input is what a recovery is given.
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

// Result is what the store is. The caller closes the index, also after an error.
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
	Left       []index.Entry    // records that are there and left out: their prefix, or the descriptor of their model, is lost
	Damage     []*damage.Error  // that a rebuild met in segments, where records may have been of which nothing tells
	Rebuilt    bool             // the index is built from segments and log alone
	Changed    bool             // something was recovered that a checkpoint should keep
}

// Leftover is a segment that an earlier process was writing, and that does not go on.
type Leftover struct {
	ID   uint64
	From int64 // behind it, what the index does not name is a tombstone
	End  int64 // no record lies behind it; 0 if nothing ever lay in the segment
	Torn bool  // there is something else than records and zeros
}

// Adopt replaces the catalog by that of a log head, with what that still had to destroy. A record that only an earlier head lists was destroyed,
// or lives again because a power cut took what stood in its place. What the recovery found dead stays on the list.
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

// run is a recovery under way. It brings the index and the catalog to the end of the log.
type run struct {
	Input
	Result

	arrivals arrivals // what the replay entered
	ranks    ranks    // blocks whose class may be another one now
	scan     scan     // what a rebuild found in the segments
	disk     disk
}

func newRun(in Input) *run {
	return &run{
		Input: in, Result: Result{Catalog: catalog.New(), Listed: map[loc.Loc]bool{}, Found: map[loc.Loc]bool{}}, disk: disk{segments: in.Segments},
	}
}

// foundDead notes a record that the recovery itself finds to be dead.
func (r *run) foundDead(l loc.Loc) {
	r.Found[l] = true
	r.Catalog.BuryAt(l)
}

// take removes a record from the index.
func (r *run) take(t *index.Txn, x index.Entry) error {
	if x.Group == 0 {
		r.ranks.block(x.Parent) // it may have its rank from this child
	}
	return t.Remove(x.Key, x.Group)
}

// drop takes out a record for good.
func (r *run) drop(t *index.Txn, x index.Entry) error {
	r.Listed[x.Loc] = true
	r.foundDead(x.Loc)
	return r.take(t, x)
}
