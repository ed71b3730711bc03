package commit

import (
	"log/slog"
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/wal"
)

// Parts are what a ledger changes.
type Parts struct {
	Dir      string
	Logger   *slog.Logger
	Segments *segments.Set
	Index    *index.Index
	Catalog  *catalog.Catalog
	Ranks    *Ranks
	Power    bool   // an acknowledgement waits for the disk
	Spare    string // a file whose blocks the log may take on a full disk, because it can be built anew
}

// Ledger is what a store says: its log, index and catalog, and the segments whose records these name.
type Ledger struct {
	Parts
	WAL      *wal.Log        // nil where the store is only read; set before anything is changed
	OnDamage func(err error) // has a damaged index rebuilt; set before anything is changed

	mu       lock.Mutex[lock.Commit]
	recency  Recency
	barriers barriers
	rounds   *rounds

	// Gate is read-held by a put from before its records are encoded until they are published. A checkpoint locks it: then no record lies below the
	// ends that it notes without a frame that names it.
	Gate lock.RWMutex[lock.PublishGate]

	Seq         atomic.Uint64 // the last sequence number that was given to a record
	Growth      atomic.Int64  // bytes appended to segments and log since the last checkpoint
	StateGrowth atomic.Int64  // of these, the frames that change only the catalog
	Dirty       atomic.Bool   // there is something for a checkpoint to do
}

// New returns the ledger of a store that was recovered.
func New(p Parts) *Ledger { return &Ledger{Parts: p, barriers: newBarriers(), rounds: newRounds()} }

// Lock keeps everybody from changing anything until Unlock.
func (l *Ledger) Lock()   { l.mu.Lock() }
func (l *Ledger) Unlock() { l.mu.Unlock() }

// Await returns when the change that is under way has ended.
func (l *Ledger) Await() {
	l.mu.Lock()
	defer l.mu.Unlock()
}

// ReadOnly reports whether the store was opened without leave to write.
func (l *Ledger) ReadOnly() bool { return l.WAL == nil }

// Poisoned returns the error after which nothing may be written any more.
func (l *Ledger) Poisoned() error {
	if l.WAL == nil {
		return folder.ErrReadOnly
	}
	if err := l.WAL.Err(); err != nil {
		return err
	}
	if err := l.Segments.Err(); err != nil {
		return err
	}
	return l.Index.Err()
}

// View returns the current version of the index, for reading. Release it.
func (l *Ledger) View() *index.View { return l.Index.View() }

// Counts returns the size of the store as of now.
func (l *Ledger) Counts() index.Counts {
	v := l.View()
	defer v.Release()
	return v.Counts()
}

// Recency holds the uses of blocks that the index does not have yet.
func (l *Ledger) Recency() *Recency { return &l.recency }

// NextCounters are what a checkpoint or the head of a log file records, so that no number is ever given twice.
func (l *Ledger) NextCounters() oplog.Counters {
	return oplog.Counters{Seq: l.Seq.Load() + 1, Segment: l.Segments.MaxID() + 1, Clock: l.Ranks.Clock.Load()}
}

// RaiseNumbers keeps sequence numbers and times up to these from being given again.
func (l *Ledger) RaiseNumbers(seq, clock uint64) {
	l.Seq.Store(max(l.Seq.Load(), seq))
	l.Ranks.Clock.Store(max(l.Ranks.Clock.Load(), clock))
}

// barriers writes them, one at a time.
type barriers struct {
	// turn holds one while one is being written. It is taken behind lock.Checkpoint and before lock.Commit, and is no lock.Mutex because the
	// tests of testing/synctest wait until nobody goes on: a wait for a channel counts there, one for a mutex does not.
	turn chan struct{}
	any  bool   // guarded by turn: there was one since the store was opened
	lsn  uint64 // guarded by turn: it covers up to this frame, and is durable itself
}

func newBarriers() barriers { return barriers{turn: make(chan struct{}, 1)} }
