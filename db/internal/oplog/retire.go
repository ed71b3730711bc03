package oplog

import (
	"fmt"

	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/packed"
	"github.com/dormousekv/dormouse/kv"
)

// Retire drops a model: every record, every ref, every note, every segment.
type Retire struct {
	Model    kv.Fingerprint
	Segments []uint64
}

func (Retire) Kind() uint8 { return KindRetire }

func (op Retire) String() string {
	return fmt.Sprintf("retire model %s with %s", op.Model, count(len(op.Segments), "segment"))
}

func (Retire) Room() Room { return Reserved }

// A segment in which nothing was ever named is unlinked by its number, too.
func (op Retire) Numbers() (n Counters) {
	for _, id := range op.Segments {
		n = n.Max(Counters{Segment: id + 1})
	}
	return n
}

// Segments go whole: no record in them is named one by one.
func (Retire) Places(func(loc.Loc, Use)) {}

func (op Retire) Replay(ix Index) error { return ix.DropModel(op.Model, op.Segments) }

func (op Retire) Change(c Catalog) { c.DropModel(op.Model, op.Segments) }

// retire = fingerprint 16 | list of u64
func (op Retire) append(b []byte) []byte {
	return packed.AppendList(append(b, op.Model[:]...), op.Segments, le.AppendUint64)
}

func (Retire) read(r *reader) Op {
	return Retire{Model: r.ID(), Segments: packed.List(&r.Reader, 8, r.U64)}
}
