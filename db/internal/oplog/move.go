package oplog

import (
	"fmt"

	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
)

// Move says that a record was copied to another place. It applies only if the key is still at From.
type Move struct {
	Key      kv.Key
	Group    uint8
	From, To loc.Loc
	Seq      uint64 // of the copy
}

func (Move) Kind() uint8 { return KindMove }

func (op Move) String() string {
	return fmt.Sprintf("move of block %s group %d from %s to %s", op.Key, op.Group, op.From, op.To)
}

func (Move) Room() Room { return Ordinary }

func (op Move) Numbers() Counters { return Counters{Seq: op.Seq + 1, Segment: op.To.Segment + 1} }

func (op Move) Places(see func(at loc.Loc, is Use)) {
	see(op.To, UseStored)
	see(op.From, UseDead)
}

func (op Move) Replay(ix Index) error { return ix.Move(op) }

// The copy must be durable before the record at the old place is destroyed.
func (op Move) Change(c Catalog) { c.Bury([]Dead{{Key: op.Key, Group: op.Group, Loc: op.From}}, true) }

// move = key 16 | u8 group | place from | place to | u64 seq
func (op Move) append(b []byte) []byte {
	b = append(append(b, op.Key[:]...), op.Group)
	return le.AppendUint64(appendPlace(appendPlace(b, op.From), op.To), op.Seq)
}

func (Move) read(r *reader) Op {
	return Move{Key: r.ID(), Group: r.U8(), From: r.place(), To: r.place(), Seq: r.U64()}
}
