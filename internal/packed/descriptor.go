package packed

import (
	"errors"
	"fmt"
	"math"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// tensorRun is a list of tensors that repeats so many times, but for their layers: models have few kinds of them.
type tensorRun struct {
	times   int
	tensors []tensor
}

type tensor struct {
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
//
// Append packs a normal descriptor.
func Append(b []byte, d *kv.Descriptor) []byte {
	b = append(b, d.Weights[:]...)
	b = append(b, d.Tokenizer[:]...)
	b = append(b, d.RoPE.FreqFactors[:]...)
	b = le.AppendUint32(b, uint32(d.RoPE.Dims))
	b = le.AppendUint32(b, math.Float32bits(d.RoPE.Base))
	b = le.AppendUint32(b, math.Float32bits(d.RoPE.Scale))
	b = AppendBool(b, d.Rotated)
	b = le.AppendUint32(b, uint32(d.Shard))
	b = le.AppendUint32(b, uint32(d.Shards))
	b = le.AppendUint32(b, uint32(d.BlockTokens))
	b = AppendBytes(b, d.Architecture)
	b = AppendBytes(b, d.RoPE.Type)
	b = AppendBytes(b, d.RoPE.Scaling)
	b = AppendBytes(b, d.StateFormat)
	b = AppendList(b, d.Groups, func(b []byte, g kv.Group) []byte {
		return le.AppendUint32(append(b, byte(g.Kind)), uint32(g.Window))
	})
	return AppendList(b, packTensors(d.Tensors), func(b []byte, run tensorRun) []byte {
		b = le.AppendUint32(b, uint32(run.times))
		return AppendList(b, run.tensors, func(b []byte, t tensor) []byte {
			b = append(le.AppendUint64(b, uint64(t.layers)), byte(t.role), byte(t.dtype))
			return append(le.AppendUint32(b, t.width), t.group)
		})
	})
}

// packTensors finds the runs: at each tensor the one that covers most, the shortest of these.
func packTensors(all []kv.Tensor) []tensorRun {
	rows := make([]tensor, len(all))
	layer := -1
	for i, t := range all {
		rows[i] = tensor{layers: int64(t.Layer) - int64(layer), role: t.Role, dtype: t.DType, width: uint32(t.Width), group: uint8(t.Group)}
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

// Decode unpacks and checks what Append wrote. The descriptor has no name, and memory of its own. The error is ErrMalformed, or vfs.ErrVersion
// for what another release wrote.
func Decode(b []byte) (kv.Descriptor, error) {
	r := NewReader(b)
	d := r.descriptor()
	err := r.End()
	if err == nil {
		err = known(&d)
	}
	if err == nil {
		err = normalForm(&d)
	}
	if err != nil {
		return kv.Descriptor{}, err
	}
	return d, nil
}

func (r *Reader) descriptor() kv.Descriptor {
	d := kv.Descriptor{Weights: r.ID(), Tokenizer: r.ID()}
	d.RoPE.FreqFactors = r.ID()
	d.RoPE.Dims = r.Length("RoPE dimensions")
	d.RoPE.Base, d.RoPE.Scale = math.Float32frombits(r.U32()), math.Float32frombits(r.U32())
	d.Rotated = r.Bool("rotated")
	d.Shard, d.Shards, d.BlockTokens = r.Length("shard"), r.Length("shards"), r.Length("block tokens")
	d.Architecture, d.RoPE.Type, d.RoPE.Scaling, d.StateFormat = r.Text(), r.Text(), r.Text(), r.Text()
	d.Groups = List(r, groupBytes, func() kv.Group {
		return kv.Group{Kind: kv.GroupKind(r.U8()), Window: r.Length("window")}
	})
	layer := int64(-1)
	for _, run := range List(r, runBytes, r.run) {
		if n := len(run.tensors); n == 0 || run.times < 1 || run.times > (kv.MaxTensors-len(d.Tensors))/n {
			r.Fail(ErrMalformed, "%d times %d tensors behind %d, at most %d", run.times, n, len(d.Tensors), kv.MaxTensors)
			return d
		}
		for range run.times {
			for _, t := range run.tensors {
				layer += t.layers
				if layer < 0 || layer > math.MaxInt32 {
					r.Fail(ErrMalformed, "layer %d", layer)
					return d
				}
				d.Tensors = append(d.Tensors, kv.Tensor{Layer: int(layer), Role: t.role, DType: t.dtype, Width: int(t.width), Group: int(t.group)})
			}
		}
	}
	return d
}

func (r *Reader) run() tensorRun {
	return tensorRun{times: r.Length("times"), tensors: List(r, tensorBytes, func() tensor {
		return tensor{layers: int64(r.U64()), role: kv.Role(r.U8()), dtype: kv.DType(r.U8()), width: r.U32(), group: r.U8()}
	})}
}

// known refuses numbers of a descriptor that only another release can have a meaning for.
func known(d *kv.Descriptor) error {
	for i, g := range d.Groups {
		if !g.Kind.Valid() {
			return fmt.Errorf("%w: group %d has kind %d, this release knows %d to %d", vfs.ErrVersion, i, g.Kind, kv.All, kv.StateAt)
		}
	}
	for i, t := range d.Tensors {
		if !t.DType.Valid() {
			return fmt.Errorf("%w: tensor %d has dtype %d, this release knows %d to %d", vfs.ErrVersion, i, t.DType, kv.Bytes, kv.Q5_1)
		}
		if !t.Role.Valid() {
			return fmt.Errorf("%w: tensor %d has role %d, this release knows %d to %d", vfs.ErrVersion, i, t.Role, kv.RoleK, kv.RoleState)
		}
	}
	return nil
}

// normalForm refuses a descriptor that was not registered like that.
func normalForm(d *kv.Descriptor) error {
	normal, err := d.Normal()
	if err == nil && !sameForm(&normal, d) {
		err = errors.New("the descriptor of a model is not in its normal form")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// sameForm compares what Normal may have changed.
func sameForm(a, b *kv.Descriptor) bool {
	return len(a.Groups) == len(b.Groups) && a.Shards == b.Shards && a.BlockTokens == b.BlockTokens &&
		math.Float32bits(a.RoPE.Base) == math.Float32bits(b.RoPE.Base) && math.Float32bits(a.RoPE.Scale) == math.Float32bits(b.RoPE.Scale)
}
