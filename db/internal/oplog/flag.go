package oplog

import (
	"fmt"

	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
)

// Flag changes the flags of a record. It applies only if the key is still at Loc.
type Flag struct {
	Key   kv.Key
	Group uint8
	Loc   loc.Loc
	Flags uint8
}

func (Flag) Kind() uint8 { return KindFlag }

func (op Flag) String() string {
	return fmt.Sprintf("flag block %s group %d at %s with %#x", op.Key, op.Group, op.Loc, op.Flags)
}

func (Flag) Room() Room { return Ordinary }

func (Flag) Numbers() Counters { return Counters{} }

// The record was put by an earlier frame, and stays where it is.
func (Flag) Places(func(loc.Loc, Use)) {}

func (op Flag) Replay(ix Index) error { return ix.SetFlags(op.Key, op.Group, op.Loc, op.Flags) }

func (op Flag) Change(c Catalog) { c.Flag(op.Key) }

// flag = key 16 | u8 group | place | u8 flags
func (op Flag) append(b []byte) []byte {
	b = append(append(b, op.Key[:]...), op.Group)
	return append(appendPlace(b, op.Loc), op.Flags)
}

func (Flag) read(r *reader) Op {
	op := Flag{Key: r.ID(), Group: r.U8(), Loc: r.place(), Flags: r.U8()}
	r.knownFlags(op.Flags)
	return op
}
