package oplog

import (
	"fmt"

	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/packed"
)

// Unref takes a name off its prefix.
type Unref struct{ Name string }

func (Unref) Kind() uint8 { return KindUnref }

func (op Unref) String() string { return fmt.Sprintf("unref %.40q", op.Name) }

// Without its pin, a block can be evicted.
func (Unref) Room() Room { return Reserved }

func (Unref) Numbers() Counters { return Counters{} }

func (Unref) Places(func(loc.Loc, Use)) {}

func (op Unref) Replay(ix Index) error {
	ix.RankRef(op.Name)
	return nil
}

func (op Unref) Change(c Catalog) { c.DropRef(op.Name) }

// unref = string name
func (op Unref) append(b []byte) []byte { return packed.AppendBytes(b, op.Name) }

func (Unref) read(r *reader) Op { return Unref{Name: r.Text()} }
