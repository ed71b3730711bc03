package oplog

import (
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
)

// Op is one operation of the log. Each kind has a file of its own, which says all that the store must know about it.
type Op interface {
	// Kind is the number of the operation's frames.
	Kind() uint8
	// String describes the operation in one line. It leaves out what the caller stored: values and metadata.
	String() string
	// Room says what the operation's frame may use on a full disk.
	Room() Room
	// Numbers returns the lowest numbers that may be given after this operation. A number is 0 if the operation gave none.
	Numbers() Counters
	// Places calls see with each place in a segment that the operation names.
	Places(see func(at loc.Loc, is Use))
	// Replay does to the index what the operation did when it was logged. The catalog is still as it was before.
	Replay(Index) error
	// Change does to the catalog what the operation says, live and in a replay alike.
	Change(Catalog)

	append(b []byte) []byte // the payload
	read(r *reader) Op      // reads a payload; the receiver is the zero value
}

// Room says what a frame may use on a full disk.
type Room uint8

const (
	// Ordinary frames fail on a full disk.
	Ordinary Room = iota
	// Reserved is for frames that free space. They may use the space that the log keeps in reserve, but for a barrier's frame.
	Reserved
	// Last is for the barrier. It may use all of the reserve: without it nothing that was deleted can be destroyed.
	Last
)

// Use says why an operation names a place in a segment.
type Use uint8

const (
	UseStored Use = iota // a record was written there
	UseDead              // the record there was given up
	UseListed            // a log head lists the record there as dead
)

// Counters are the next numbers to be given, so that none is given twice.
type Counters struct {
	Seq     uint64
	Segment uint64
	Clock   uint64
}

// Max returns the higher of each number.
func (c Counters) Max(d Counters) Counters {
	return Counters{Seq: max(c.Seq, d.Seq), Segment: max(c.Segment, d.Segment), Clock: max(c.Clock, d.Clock)}
}

// Index is what a replay brings to the end of the log. Each method changes a record only where it still lies where the operation
// says.
type Index interface {
	// Put enters records in the place of those that are given up.
	Put(records []index.Entry, dead []Dead) error
	// Remove takes records out. What has a higher sequence number than seq was stored afterwards, and stays.
	Remove(dead []Dead, seq uint64) error
	// RemoveListed takes out what was put at these places.
	RemoveListed(places []loc.Loc) error
	// Move says that a record was copied.
	Move(op Move) error
	// SetFlags changes a record's flags.
	SetFlags(key kv.Key, group uint8, at loc.Loc, flags uint8) error
	// DropModel takes out a model's records, all of which lie in these segments.
	DropModel(fp kv.Fingerprint, segments []uint64) error
	// RankBlock notes that the refs on a block change.
	RankBlock(block kv.Key)
	// RankRef notes that the block changes that a name is on.
	RankRef(name string)
}

// Catalog is the small state of a store, as operations change it.
type Catalog interface {
	// Become replaces everything by what a log head says.
	Become(head Snapshot)
	SetModel(Model)
	// DropModel drops a model with its refs and notes, and has its segments unlinked.
	DropModel(fp kv.Fingerprint, segments []uint64)
	SetRef(Ref)
	DropRef(name string)
	// SetNote sets a note. An empty value removes it.
	SetNote(Note)
	// Bury has the bytes of records destroyed: after a barrier, or else after the frame that says so.
	Bury(dead []Dead, barrier bool)
	// Deleted notes that something was deleted: what former refs said must leave log and index, too.
	Deleted()
	// Flag notes that a record of a block was found damaged.
	Flag(block kv.Key)
}
