//lint:file-ignore U1000 msgpack reads the tags of the _msgpack fields

package db

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/dormousekv/dormouse/kv"
)

// opModel is one version of a model. Its descriptor stays packed until somebody asks for it: a store has thousands of models, and a
// process few. The bytes are never changed; they may be shared with the frame that they came in.
type opModel struct {
	_msgpack    struct{} `msgpack:",as_array"`
	Fingerprint kv.Fingerprint
	Name        string
	Stamp       uint64 // orders the versions of one name
	Descriptor  []byte // a packedDescriptor
}

// packedDescriptor is a descriptor in its normal form, without the name.
type packedDescriptor struct {
	_msgpack            struct{} `msgpack:",as_array"`
	Weights             kv.Hash
	Architecture        string
	Tokenizer           kv.Hash
	RoPEType            string
	RoPEDims            int
	RoPEBase, RoPEScale float32
	RoPEScaling         string
	RoPEFreqFactors     kv.Hash
	Rotated             bool
	Shard, Shards       int
	StateFormat         string
	BlockTokens         int
	Groups              []packedGroup
	Tensors             []tensorRun
}

type packedGroup struct {
	_msgpack struct{} `msgpack:",as_array"`
	Kind     kv.GroupKind
	Window   int
}

// tensorRun is Times times the same tensors, but for their layers: models repeat a few of them.
type tensorRun struct {
	_msgpack struct{} `msgpack:",as_array"`
	Times    int
	Tensors  []packedTensor
}

type packedTensor struct {
	_msgpack struct{} `msgpack:",as_array"`
	Layers   int      // from the layer of the tensor before; the first one's is -1
	Role     kv.Role
	DType    kv.DType
	Width    uint32
	Group    int
}

// maxRunTensors is the most tensors of a run. A list of so many may have elements of any size.
const maxRunTensors = maxPayloadFields

// newOpModel packs a normal descriptor.
func newOpModel(d *kv.Descriptor, stamp uint64) opModel {
	p := packedDescriptor{
		Weights: d.Weights, Architecture: d.Architecture, Tokenizer: d.Tokenizer,
		RoPEType: d.RoPE.Type, RoPEDims: d.RoPE.Dims, RoPEBase: d.RoPE.Base, RoPEScale: d.RoPE.Scale,
		RoPEScaling: d.RoPE.Scaling, RoPEFreqFactors: d.RoPE.FreqFactors,
		Rotated: d.Rotated, Shard: d.Shard, Shards: d.Shards, StateFormat: d.StateFormat, BlockTokens: d.BlockTokens,
		Tensors: packTensors(d.Tensors),
	}
	for _, g := range d.Groups {
		p.Groups = append(p.Groups, packedGroup{Kind: g.Kind, Window: g.Window})
	}
	return opModel{Fingerprint: d.Fingerprint(), Name: d.Name, Stamp: stamp, Descriptor: encodeOp(p)}
}

// packTensors finds the runs: at each tensor the one that covers most, the shortest of these.
func packTensors(all []kv.Tensor) []tensorRun {
	rows := make([]packedTensor, len(all))
	layer := -1
	for i, t := range all {
		rows[i] = packedTensor{Layers: t.Layer - layer, Role: t.Role, DType: t.DType, Width: uint32(t.Width), Group: t.Group}
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
		runs = append(runs, tensorRun{Times: covered / best, Tensors: rows[:best]})
		rows = rows[covered:]
	}
	return runs
}

// descriptor unpacks and checks the model's descriptor.
func (m *opModel) descriptor() (d kv.Descriptor, err error) {
	var p packedDescriptor
	if err := unmarshal(m.Descriptor, &p); err != nil {
		return d, err
	}
	d = kv.Descriptor{
		Name: m.Name, Weights: p.Weights, Architecture: p.Architecture, Tokenizer: p.Tokenizer,
		RoPE: kv.RoPE{
			Type: p.RoPEType, Dims: p.RoPEDims, Base: p.RoPEBase, Scale: p.RoPEScale, Scaling: p.RoPEScaling, FreqFactors: p.RoPEFreqFactors,
		},
		Rotated: p.Rotated, Shard: p.Shard, Shards: p.Shards, StateFormat: p.StateFormat, BlockTokens: p.BlockTokens,
	}
	for _, g := range p.Groups {
		d.Groups = append(d.Groups, kv.Group{Kind: g.Kind, Window: g.Window})
	}
	layer := -1
	for _, run := range p.Tensors {
		if n := len(run.Tensors); n == 0 || run.Times < 1 || run.Times > (kv.MaxTensors-len(d.Tensors))/n {
			return d, fmt.Errorf("%w: %d times %d tensors behind %d, at most %d", errPayload, run.Times, n, len(d.Tensors), kv.MaxTensors)
		}
		for range run.Times {
			for _, t := range run.Tensors {
				layer += t.Layers
				d.Tensors = append(d.Tensors, kv.Tensor{Layer: layer, Role: t.Role, DType: t.DType, Width: int(t.Width), Group: t.Group})
			}
		}
	}
	if err := normalForm(&d); err != nil {
		return d, err
	}
	if got := d.Fingerprint(); got != m.Fingerprint {
		return d, fmt.Errorf("%w: the fingerprint of model %.40q is %s, its descriptor's %s", errPayload, m.Name, m.Fingerprint, got)
	}
	return d, nil
}

// normalForm refuses a descriptor that was not registered like that.
func normalForm(d *kv.Descriptor) error {
	normal, err := d.Normal()
	if err == nil && !sameForm(&normal, d) {
		err = errors.New("the descriptor of a model is not in its normal form")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errPayload, err)
	}
	return nil
}

// sameForm compares what Normal may have changed.
func sameForm(a, b *kv.Descriptor) bool {
	return len(a.Groups) == len(b.Groups) && a.Shards == b.Shards && a.BlockTokens == b.BlockTokens &&
		math.Float32bits(a.RoPE.Base) == math.Float32bits(b.RoPE.Base) && math.Float32bits(a.RoPE.Scale) == math.Float32bits(b.RoPE.Scale)
}

// DecodeMsgpack reads a model.
func (m *opModel) DecodeMsgpack(dec *msgpack.Decoder) error {
	raw, err := dec.DecodeRaw()
	if err != nil {
		return err
	}
	rest, err := m.read(raw)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes behind a model", errPayload, len(rest))
	}
	return err
}

// read reads the model at the start of b, and returns what follows it. Its descriptor shares b, which is not changed any more. A head of the log may
// have thousands: msgpack would take longer for them than the rest of an Open.
func (m *opModel) read(b []byte) (rest []byte, err error) {
	const head = "\x94\xc4\x10" // an array of four, a bin of 16 bytes
	n := len(head) + len(m.Fingerprint)
	if len(b) < n || string(b[:len(head)]) != head {
		return nil, fmt.Errorf("%w: no model in its last %d bytes", errPayload, len(b))
	}
	copy(m.Fingerprint[:], b[len(head):])
	name, b, err := readBytes(b[n:], 0xd9)
	if err != nil {
		return nil, err
	}
	m.Name = string(name)
	if len(b) < 9 || b[0] != 0xcf {
		return nil, fmt.Errorf("%w: no stamp of a model in its last %d bytes", errPayload, len(b))
	}
	m.Stamp = binary.BigEndian.Uint64(b[1:])
	m.Descriptor, b, err = readBytes(b[9:], 0xc4)
	return b, err
}

// readBytes reads a msgpack str, of code 0xd9, or bin, of 0xc4, at the start of b.
func readBytes(b []byte, code byte) (out, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, fmt.Errorf("%w: it ends in a value", errPayload)
	}
	size, n := 0, uint64(0)
	switch c := b[0]; {
	case code == 0xd9 && c&0xe0 == 0xa0:
		n = uint64(c & 0x1f)
	case c >= code && c <= code+2:
		size = 1 << (c - code)
	default:
		return nil, nil, fmt.Errorf("%w: code %#x for bytes", errPayload, c)
	}
	if b = b[1:]; len(b) < size {
		return nil, nil, fmt.Errorf("%w: it ends in a value", errPayload)
	}
	for _, x := range b[:size] {
		n = n<<8 | uint64(x)
	}
	if b = b[size:]; n > uint64(len(b)) {
		return nil, nil, fmt.Errorf("%w: bytes of %d in its last %d bytes", errPayload, n, len(b))
	}
	return b[:n:n], b[n:], nil
}

// opModels are the models of a log head: one bin that has them one behind the other, so that it is stepped over at once.
type opModels []opModel

// EncodeMsgpack writes the bin.
func (all opModels) EncodeMsgpack(enc *msgpack.Encoder) error {
	var b bytes.Buffer
	to := msgpack.NewEncoder(&b)
	for i := range all {
		if err := to.Encode(&all[i]); err != nil {
			return err
		}
	}
	return enc.EncodeBytes(b.Bytes())
}

// DecodeMsgpack reads the bin.
func (all *opModels) DecodeMsgpack(dec *msgpack.Decoder) error {
	b, err := dec.DecodeBytes()
	if err != nil {
		return err
	}
	*all = make(opModels, 0, len(b)/minModelBytes)
	for len(b) > 0 {
		var m opModel
		if b, err = m.read(b); err != nil {
			return err
		}
		*all = append(*all, m)
	}
	return nil
}

// minModelBytes is more than half of what a model takes in a head, so that few bytes of a list's room stay empty.
const minModelBytes = 128
