package write

import (
	"context"
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/kv"
)

// Store is the store that is written to. It is safe for concurrent use; its fields do not change.
type Store struct {
	*lease.Store
	Rows   *read.Source // what is stored already
	Engine Engine

	PublishGate *lock.RWMutex[lock.PublishGate] // read-held from before records are encoded to their publishing: below it nothing is unnamed
	Seq         *atomic.Uint64                  // the last sequence number that was given to a record
	Grown       *atomic.Int64                   // counts the bytes that were appended since the last checkpoint
	Replaced    *atomic.Int64                   // counts the records that puts took the place of
}

// Engine is what a put needs of the engine that it writes with. All of it is safe for concurrent use.
type Engine interface {
	// Reserve takes room for so many bytes, and as many new blocks, if there is some without evicting. GiveUp gives it back.
	Reserve(bytes, blocks int64) bool
	GiveUp(bytes, blocks int64)
	// MakeRoom is Reserve that evicts. The caller holds no lock, and not the publish gate.
	MakeRoom(ctx context.Context, bytes, blocks int64) error
	// TryRoom is MakeRoom that does not wait for what open matches keep. RoomShare is how many bytes it is asked for at a time.
	TryRoom(ctx context.Context, bytes, blocks int64) error
	RoomShare() int64
	// Hopeless returns an error if so many new bytes of a prompt, or all its blocks, would not fit if nothing else were stored.
	Hopeless(bytes, blocks int64) error

	// Whole reports whether a record is stored, and whole as far as its header says. One that is not is flagged. The caller holds no lock.
	Whole(k kv.Key, group uint8) (bool, error)
	// WasDamaged reports whether a record of a block was once found damaged.
	WasDamaged(k kv.Key) bool
	// Named reports whether a ref names a block.
	Named(k kv.Key) bool

	// Commit publishes what build changes in the index, and logs the operation that it returns, or does neither. A nil operation: there is
	// nothing to log. If lsn is not 0 in spite of an error, the operation is logged. visible, if there is one, is called where there is none,
	// before anybody else can commit.
	Commit(build func(t *index.Txn) (oplog.Op, error), visible func()) (lsn uint64, err error)
	// CommitEviction is Commit of a removal of what goes for something that was put since: what is dead waits for a barrier, as what is replaced does. No
	// counter has it.
	CommitEviction(build func(t *index.Txn) (op oplog.Remove, blocks int, err error)) error
	// RemoveBlock takes a block without children out of the index, with the records of all its groups.
	RemoveBlock(t *index.Txn, block index.Entry) (dead []oplog.Dead, err error)
	// Doom hands over records that nothing names any more, to be destroyed. behind: once all that was written until now is durable.
	Doom(dead []oplog.Dead, behind bool)
	// AddToBloom is called before a block is published, so that a "no" is always true.
	AddToBloom(k kv.Key)
	// Ranked gives a new block its place in the order of eviction, and the time of its use.
	Ranked(x *index.Entry)

	// Durable waits for the disk where the store's mode says so: for the frame lsn, and for what other puts have stored of the same prompt.
	Durable(lsn uint64) error
}

// Model is the model whose rows are put.
type Model struct {
	prefix.Model
	// Registered returns an error if the model was retired.
	Registered func() error
}
