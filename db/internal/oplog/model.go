package oplog

import (
	"fmt"

	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/packed"
	"github.com/dormousekv/dormouse/kv"
)

// Model registers one version of a model. Its descriptor stays packed until somebody asks for it: a store has thousands of models, and a
// process uses few. The packed bytes are never changed.
type Model struct {
	Fingerprint kv.Fingerprint
	Name        string
	Stamp       uint64 // orders the versions of one name
	Packed      []byte // the descriptor in its normal form, without the name
}

// NewModel packs a normal descriptor.
func NewModel(d *kv.Descriptor, stamp uint64) Model {
	return Model{Fingerprint: d.Fingerprint(), Name: d.Name, Stamp: stamp, Packed: packed.Append(nil, d)}
}

// Descriptor unpacks and checks the model's descriptor. Its memory is its own.
func (op *Model) Descriptor() (kv.Descriptor, error) {
	d, err := packed.Decode(op.Packed)
	if err != nil {
		return kv.Descriptor{}, err
	}
	if got := d.Fingerprint(); got != op.Fingerprint {
		return kv.Descriptor{}, fmt.Errorf("%w: the fingerprint of model %.40q is %s, its descriptor's %s", ErrPayload, op.Name, op.Fingerprint, got)
	}
	d.Name = op.Name
	return d, nil
}

// Bytes is what a model takes in the head of the log, generously.
func (op Model) Bytes() int64 { return int64(64 + len(op.Name) + len(op.Packed)) }

func (Model) Kind() uint8 { return KindModel }

func (op Model) String() string { return fmt.Sprintf("model %s %.40q", op.Fingerprint, op.Name) }

func (Model) Room() Room { return Ordinary }

// The uses before it made the clock go on, and are in no frame.
func (op Model) Numbers() Counters { return Counters{Clock: op.Stamp} }

func (Model) Places(func(loc.Loc, Use)) {}

func (Model) Replay(Index) error { return nil }

func (op Model) Change(c Catalog) { c.SetModel(op) }

// modelBytes is the least length of a model.
const modelBytes = 32

// model = fingerprint 16 | u64 stamp | string name | bytes descriptor
func (op Model) append(b []byte) []byte {
	b = le.AppendUint64(append(b, op.Fingerprint[:]...), op.Stamp)
	return packed.AppendBytes(packed.AppendBytes(b, op.Name), op.Packed)
}

func (Model) read(r *reader) Op { return readModel(r) }

func readModel(r *reader) Model {
	return Model{Fingerprint: r.ID(), Stamp: r.U64(), Name: r.Text(), Packed: r.Bytes()}
}
