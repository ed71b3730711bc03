package oplog

import (
	"errors"
	"fmt"
	"math"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Model is one version of a model. Its descriptor stays packed until somebody asks for it: a store has thousands of models, and a
// process few. The bytes are never changed; they may be shared with the frame that they came in.
type Model struct {
	Fingerprint kv.Fingerprint
	Name        string
	Stamp       uint64 // orders the versions of one name
	Packed      []byte // the descriptor in its normal form, without the name
}

// NewModel packs a normal descriptor.
func NewModel(d *kv.Descriptor, stamp uint64) Model {
	return Model{Fingerprint: d.Fingerprint(), Name: d.Name, Stamp: stamp, Packed: appendDescriptor(nil, d)}
}

// modelBytes is the least length of a model.
const modelBytes = 32

// model = fingerprint 16 | u64 stamp | string name | bytes descriptor
func (op Model) append(b []byte) []byte {
	b = le.AppendUint64(append(b, op.Fingerprint[:]...), op.Stamp)
	return appendBytes(appendBytes(b, op.Name), op.Packed)
}

func (r *reader) model() Model {
	return Model{Fingerprint: r.id(), Stamp: r.u64(), Name: r.string(), Packed: r.shared()}
}

// tensorRun is a list of tensors that repeats so many times, but for their layers: models have few kinds of them.
type tensorRun struct {
	times   int
	tensors []packedTensor
}

type packedTensor struct {
	layers int64 // from the layer of the tensor before; that of the first one is -1
	role   kv.Role
	dtype  kv.DType
	width  uint32
	group  uint8
}

const (
	// maxRunTensors is the most tensors of a run as they are written.
	maxRunTensors = 16
	tensorBytes   = 15
	runBytes      = 8
	groupBytes    = 5
)

// A descriptor, without its name:
//
//	 0 │ weights 16 │ tokenizer 16 │ RoPE frequency factors 16 │
//	48 │ u32 RoPE dims │ f32 RoPE base │ f32 RoPE scale │
//	60 │ bool rotated │ u32 shard │ u32 shards │ u32 block tokens │
//	73 │ string architecture │ string RoPE type │ string RoPE scaling │ string state format │
//	   │ list of group {u8 kind, u32 window} │
//	   │ list of run {u32 times, list of tensor {i64 layers, u8 role, u8 dtype, u32 width, u8 group}} │
func appendDescriptor(b []byte, d *kv.Descriptor) []byte {
	b = append(b, d.Weights[:]...)
	b = append(b, d.Tokenizer[:]...)
	b = append(b, d.RoPE.FreqFactors[:]...)
	b = le.AppendUint32(b, uint32(d.RoPE.Dims))
	b = le.AppendUint32(b, math.Float32bits(d.RoPE.Base))
	b = le.AppendUint32(b, math.Float32bits(d.RoPE.Scale))
	b = appendBool(b, d.Rotated)
	b = le.AppendUint32(b, uint32(d.Shard))
	b = le.AppendUint32(b, uint32(d.Shards))
	b = le.AppendUint32(b, uint32(d.BlockTokens))
	b = appendBytes(b, d.Architecture)
	b = appendBytes(b, d.RoPE.Type)
	b = appendBytes(b, d.RoPE.Scaling)
	b = appendBytes(b, d.StateFormat)
	b = appendList(b, d.Groups, func(b []byte, g kv.Group) []byte {
		return le.AppendUint32(append(b, byte(g.Kind)), uint32(g.Window))
	})
	return appendList(b, packTensors(d.Tensors), func(b []byte, run tensorRun) []byte {
		b = le.AppendUint32(b, uint32(run.times))
		return appendList(b, run.tensors, func(b []byte, t packedTensor) []byte {
			b = append(le.AppendUint64(b, uint64(t.layers)), byte(t.role), byte(t.dtype))
			return append(le.AppendUint32(b, t.width), t.group)
		})
	})
}

// packTensors finds the runs: at each tensor the one that covers most, the shortest of these.
func packTensors(all []kv.Tensor) []tensorRun {
	rows := make([]packedTensor, len(all))
	layer := -1
	for i, t := range all {
		rows[i] = packedTensor{layers: int64(t.Layer) - int64(layer), role: t.Role, dtype: t.DType, width: uint32(t.Width), group: uint8(t.Group)}
		layer = t.Layer
	}
	var runs []tensorRun
	for len(rows) > 0 {
		best, covered := 0, 0
		for n := 1; n <= min(maxRunTensors, len(rows)); n++ {
			same := n
			for same < len(rows) && rows[same] == rows[same-n] {
				same++
			}
			if same -= same % n; same > covered && (same > n || n == 1) {
				best, covered = n, same
			}
		}
		runs = append(runs, tensorRun{times: covered / best, tensors: rows[:best]})
		rows = rows[covered:]
	}
	return runs
}

// Descriptor unpacks and checks the model's descriptor. Its memory is its own.
func (op *Model) Descriptor() (kv.Descriptor, error) {
	r := &reader{b: op.Packed}
	d := r.descriptor()
	d.Name = op.Name
	if len(r.b) > 0 {
		r.fail(ErrPayload, "%d bytes behind its end", len(r.b))
	}
	if r.err == nil {
		r.knownIn(&d)
	}
	if r.err == nil {
		r.err = normalForm(&d)
	}
	if r.err != nil {
		return kv.Descriptor{}, r.err
	}
	if got := d.Fingerprint(); got != op.Fingerprint {
		return kv.Descriptor{}, fmt.Errorf("%w: the fingerprint of model %.40q is %s, its descriptor's %s", ErrPayload, op.Name, op.Fingerprint, got)
	}
	return d, nil
}

func (r *reader) descriptor() kv.Descriptor {
	d := kv.Descriptor{Weights: r.id(), Tokenizer: r.id()}
	d.RoPE.FreqFactors = r.id()
	d.RoPE.Dims = r.length("RoPE dimensions")
	d.RoPE.Base, d.RoPE.Scale = math.Float32frombits(r.u32()), math.Float32frombits(r.u32())
	d.Rotated = r.bool("rotated")
	d.Shard, d.Shards, d.BlockTokens = r.length("shard"), r.length("shards"), r.length("block tokens")
	d.Architecture, d.RoPE.Type, d.RoPE.Scaling, d.StateFormat = r.string(), r.string(), r.string(), r.string()
	d.Groups = readList(r, groupBytes, func(r *reader) kv.Group {
		return kv.Group{Kind: kv.GroupKind(r.u8()), Window: r.length("window")}
	})
	layer := int64(-1)
	for _, run := range readList(r, runBytes, (*reader).run) {
		if n := len(run.tensors); n == 0 || run.times < 1 || run.times > (kv.MaxTensors-len(d.Tensors))/n {
			r.fail(ErrPayload, "%d times %d tensors behind %d, at most %d", run.times, n, len(d.Tensors), kv.MaxTensors)
			return d
		}
		for range run.times {
			for _, t := range run.tensors {
				layer += t.layers
				if layer < 0 || layer > math.MaxInt32 {
					r.fail(ErrPayload, "layer %d", layer)
					return d
				}
				d.Tensors = append(d.Tensors, kv.Tensor{Layer: int(layer), Role: t.role, DType: t.dtype, Width: int(t.width), Group: int(t.group)})
			}
		}
	}
	return d
}

func (r *reader) run() tensorRun {
	return tensorRun{times: r.length("times"), tensors: readList(r, tensorBytes, func(r *reader) packedTensor {
		return packedTensor{layers: int64(r.u64()), role: kv.Role(r.u8()), dtype: kv.DType(r.u8()), width: r.u32(), group: r.u8()}
	})}
}

// knownIn refuses numbers of a descriptor that only another release can have a meaning for.
func (r *reader) knownIn(d *kv.Descriptor) {
	for i, g := range d.Groups {
		if !g.Kind.Valid() {
			r.fail(vfs.ErrVersion, "group %d has kind %d, this release knows %d to %d", i, g.Kind, kv.All, kv.StateAt)
		}
	}
	for i, t := range d.Tensors {
		if !t.DType.Valid() {
			r.fail(vfs.ErrVersion, "tensor %d has dtype %d, this release knows %d to %d", i, t.DType, kv.Bytes, kv.Q5_1)
		}
		if !t.Role.Valid() {
			r.fail(vfs.ErrVersion, "tensor %d has role %d, this release knows %d to %d", i, t.Role, kv.RoleK, kv.RoleState)
		}
	}
}

// normalForm refuses a descriptor that was not registered like that.
func normalForm(d *kv.Descriptor) error {
	normal, err := d.Normal()
	if err == nil && !sameForm(&normal, d) {
		err = errors.New("the descriptor of a model is not in its normal form")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPayload, err)
	}
	return nil
}

// sameForm compares what Normal may have changed.
func sameForm(a, b *kv.Descriptor) bool {
	return len(a.Groups) == len(b.Groups) && a.Shards == b.Shards && a.BlockTokens == b.BlockTokens &&
		math.Float32bits(a.RoPE.Base) == math.Float32bits(b.RoPE.Base) && math.Float32bits(a.RoPE.Scale) == math.Float32bits(b.RoPE.Scale)
}
