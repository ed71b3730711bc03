package oplog

import (
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/wal"
)

// Kinds of log frames. The numbers are stored.
const (
	KindSnapshot uint8 = wal.KindSnapshot
	KindPut      uint8 = 2
	KindRemove   uint8 = 3
	KindMove     uint8 = 4
	KindModel    uint8 = 5
	KindRetire   uint8 = 6
	KindRef      uint8 = 7
	KindUnref    uint8 = 8
	KindFlag     uint8 = 9
	KindNote     uint8 = 10
	KindBarrier  uint8 = 11

	lastKind = KindBarrier
)

// Op is one operation: a [Snapshot], [Put], [Remove], [Move], [Model], [Retire], [Ref], [Unref], [Flag], [Note] or [Barrier].
type Op interface {
	// Kind is that of the operation's frame.
	Kind() uint8
	append(b []byte) []byte
}

// Put publishes records. Dead are those that they replace.
type Put struct {
	Records []index.Entry // rank, hits and last use are not logged
	Dead    []Dead
}

// Dead is a record that nothing names any more, and whose bytes are to be destroyed.
type Dead struct {
	Key    kv.Key
	Group  uint8
	Loc    loc.Loc
	Unseen bool // no open match can have found it; not logged
}

// Remove takes records out of the store: evicted, or deleted for good.
type Remove struct {
	Deleted bool // false: evicted
	Behind  bool // what was put since must be durable before the bytes go; not logged
	Dead    []Dead
	Refs    []string // refs that go with them
	Seq     uint64   // the last that was given to a record: what has a later one was stored since
}

// Move says that a record was copied to another place. It applies only if the key is still at From.
type Move struct {
	Key      kv.Key
	Group    uint8
	From, To loc.Loc
	Seq      uint64 // of the copy
}

// Retire drops a model: every record, every ref, every segment.
type Retire struct {
	Model    kv.Fingerprint
	Segments []uint64
}

// Ref is a name on a prefix.
type Ref struct {
	Name     string
	Model    kv.Fingerprint
	Block    kv.Key // the stored block that holds the prefix's last token
	Tokens   int    // length of the prefix
	Pinned   bool
	Priority uint8
	Expires  time.Time // zero: never
	Set      time.Time
	Meta     []byte // the caller's
	Trail    kv.Trail
}

// Unref takes a name off its prefix.
type Unref struct{ Name string }

// Flag changes the flags of a record. It applies only if the key is still at Loc.
type Flag struct {
	Key   kv.Key
	Group uint8
	Loc   loc.Loc
	Flags uint8
}

// Note is a small value on a model. An empty one removes it.
type Note struct {
	Model kv.Fingerprint
	Name  string
	Value []byte
}

// Limits of notes.
const (
	MaxNoteName  = 64      // bytes
	MaxNoteBytes = 8 << 10 // of a value
)

// Barrier says that segments and log are durable up to a frame. Its own number is a later one, since others were written meanwhile.
type Barrier struct{ LSN uint64 }

// BarrierBytes is the length of a barrier's payload.
const BarrierBytes = 8

// Snapshot is the small state of a store, as the head of each log file repeats it.
type Snapshot struct {
	Next       Counters
	Ends       map[uint64]int64 // segments that were being written, and up to where every record in them is named
	Models     []Model
	Refs       []Ref
	Tombstones []loc.Loc // records whose bytes may still be there
	Unlinked   []uint64  // segments whose files may still be there
	Flagged    []kv.Key  // blocks of which a record was found damaged
	Notes      []Note
	FormerRefs FormerRefs
}

// Counters are the next numbers to be given, so that none is given twice.
type Counters struct {
	Seq     uint64
	Segment uint64
	Clock   uint64
}

// FormerRefs says whether log and index may hold what refs said that are gone. The numbers are stored.
type FormerRefs uint8

const (
	FormerNone    FormerRefs = iota
	FormerSet                // of refs that were set anew: it goes in time
	FormerDeleted            // something was deleted since: the next Sync sees to it
)

func (Snapshot) Kind() uint8 { return KindSnapshot }
func (Put) Kind() uint8      { return KindPut }
func (Remove) Kind() uint8   { return KindRemove }
func (Move) Kind() uint8     { return KindMove }
func (Model) Kind() uint8    { return KindModel }
func (Retire) Kind() uint8   { return KindRetire }
func (Ref) Kind() uint8      { return KindRef }
func (Unref) Kind() uint8    { return KindUnref }
func (Flag) Kind() uint8     { return KindFlag }
func (Note) Kind() uint8     { return KindNote }
func (Barrier) Kind() uint8  { return KindBarrier }

// Bytes is what a model takes in the head of the log, generously.
func (op Model) Bytes() int64 { return int64(64 + len(op.Name) + len(op.Packed)) }

// Bytes is what a ref takes in the head of the log, generously.
func (op Ref) Bytes() int64 { return int64(256 + len(op.Name) + len(op.Meta) + len(op.Trail)) }

// Bytes is what a note takes in the head of the log, generously.
func (op Note) Bytes() int64 { return int64(64 + len(op.Name) + len(op.Value)) }

// Expired reports whether the ref's time is over.
func (op Ref) Expired(now time.Time) bool { return !op.Expires.IsZero() && op.Expires.Before(now) }

// Before is the block that one hangs from; zero for the first of a prompt.
func Before(block index.Entry) kv.Key {
	if block.First == 0 {
		return kv.Key{}
	}
	return block.Parent
}
