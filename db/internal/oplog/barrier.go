package oplog

import (
	"fmt"

	"github.com/dormousekv/dormouse/internal/loc"
)

// Barrier says that segments and log are durable up to a frame. Its own number is a later one, since others were written meanwhile.
type Barrier struct{ LSN uint64 }

// BarrierBytes is the length of a barrier's payload.
const BarrierBytes = 8

func (Barrier) Kind() uint8 { return KindBarrier }

func (op Barrier) String() string { return fmt.Sprintf("barrier behind frame %d", op.LSN) }

func (Barrier) Room() Room { return Last }

func (Barrier) Numbers() Counters { return Counters{} }

func (Barrier) Places(func(loc.Loc, Use)) {}

// Who reads the log looks for the last barrier before the replay.
func (Barrier) Replay(Index) error { return nil }

func (Barrier) Change(Catalog) {}

// barrier = u64 LSN
func (op Barrier) append(b []byte) []byte { return le.AppendUint64(b, op.LSN) }

func (Barrier) read(r *reader) Op { return Barrier{LSN: r.U64()} }
