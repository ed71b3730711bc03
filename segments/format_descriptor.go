package segments

import (
	"bytes"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/dormousekv/dormouse/kv"
)

// Names of the descriptor's fields, in the order in which they are written. Groups are arrays [kind, window], tensors
// arrays [layer, role, dtype, width, group]. A reader refuses names that it does not know: a field that it cannot
// compare could make two caches look alike.
const (
	fieldName         = "name"
	fieldWeights      = "weights"
	fieldArchitecture = "arch"
	fieldTokenizer    = "tokenizer"
	fieldRoPEType     = "rope"
	fieldRoPEDims     = "rope_dims"
	fieldRoPEBase     = "rope_base"
	fieldRoPEScale    = "rope_scale"
	fieldRoPEScaling  = "rope_scaling"
	fieldRoPEFactors  = "rope_factors"
	fieldRotated      = "rotated"
	fieldShard        = "shard"
	fieldShards       = "shards"
	fieldStateFormat  = "state"
	fieldBlockTokens  = "block"
	fieldGroups       = "groups"
	fieldTensors      = "tensors"
)

const descriptorFields = 17

// encodeDescriptor writes a normal descriptor as one msgpack map.
func encodeDescriptor(d *kv.Descriptor) ([]byte, error) {
	var buf bytes.Buffer
	w := descriptorWriter{enc: msgpack.NewEncoder(&buf)}
	w.enc.UseCompactInts(true)
	w.do(w.enc.EncodeMapLen(descriptorFields))
	w.str(fieldName, d.Name)
	w.hash(fieldWeights, d.Weights)
	w.str(fieldArchitecture, d.Architecture)
	w.hash(fieldTokenizer, d.Tokenizer)
	w.str(fieldRoPEType, d.RoPE.Type)
	w.num(fieldRoPEDims, d.RoPE.Dims)
	w.f32(fieldRoPEBase, d.RoPE.Base)
	w.f32(fieldRoPEScale, d.RoPE.Scale)
	w.str(fieldRoPEScaling, d.RoPE.Scaling)
	w.hash(fieldRoPEFactors, d.RoPE.FreqFactors)
	w.field(fieldRotated)
	w.do(w.enc.EncodeBool(d.Rotated))
	w.num(fieldShard, d.Shard)
	w.num(fieldShards, d.Shards)
	w.str(fieldStateFormat, d.StateFormat)
	w.num(fieldBlockTokens, d.BlockTokens)
	w.field(fieldGroups)
	w.do(w.enc.EncodeArrayLen(len(d.Groups)))
	for _, g := range d.Groups {
		w.row(int(g.Kind), g.Window)
	}
	w.field(fieldTensors)
	w.do(w.enc.EncodeArrayLen(len(d.Tensors)))
	for _, t := range d.Tensors {
		w.row(t.Layer, int(t.Role), int(t.DType), t.Width, t.Group)
	}
	if w.err != nil {
		return nil, w.err
	}
	if buf.Len() > maxDescriptorBytes {
		return nil, fmt.Errorf("%w: a descriptor of %d bytes, at most %d", errRecord, buf.Len(), maxDescriptorBytes)
	}
	return buf.Bytes(), nil
}

type descriptorWriter struct {
	enc *msgpack.Encoder
	err error
}

func (w *descriptorWriter) do(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *descriptorWriter) field(name string) { w.do(w.enc.EncodeString(name)) }
func (w *descriptorWriter) str(name, s string) {
	w.field(name)
	w.do(w.enc.EncodeString(s))
}
func (w *descriptorWriter) num(name string, n int) {
	w.field(name)
	w.do(w.enc.EncodeInt(int64(n)))
}
func (w *descriptorWriter) f32(name string, f float32) {
	w.field(name)
	w.do(w.enc.EncodeFloat32(f))
}
func (w *descriptorWriter) hash(name string, h kv.Hash) {
	w.field(name)
	w.do(w.enc.EncodeBytes(h[:]))
}
func (w *descriptorWriter) row(nums ...int) {
	w.do(w.enc.EncodeArrayLen(len(nums)))
	for _, n := range nums {
		w.do(w.enc.EncodeInt(int64(n)))
	}
}

// decodeDescriptor reads what encodeDescriptor wrote. No array is allocated by a length that the bytes claim beyond the
// limits of kv.
func decodeDescriptor(b []byte) (kv.Descriptor, error) {
	src := bytes.NewReader(b)
	r := descriptorReader{dec: msgpack.NewDecoder(src)}
	n, err := r.dec.DecodeMapLen()
	if err != nil {
		return kv.Descriptor{}, err
	}
	if n > descriptorFields {
		return kv.Descriptor{}, fmt.Errorf("%w: %d fields, this release knows %d", ErrVersion, n, descriptorFields)
	}
	if n != descriptorFields {
		return kv.Descriptor{}, fmt.Errorf("%d fields, expected %d", n, descriptorFields)
	}
	var d kv.Descriptor
	seen := map[string]bool{}
	for range n {
		name := r.str()
		if r.err == nil && seen[name] {
			return kv.Descriptor{}, fmt.Errorf("field %q twice", name)
		}
		seen[name] = true
		r.value(name, &d)
		if r.err != nil {
			return kv.Descriptor{}, fmt.Errorf("field %q: %w", name, r.err)
		}
	}
	if src.Len() != 0 {
		return kv.Descriptor{}, fmt.Errorf("%d bytes behind the last field", src.Len())
	}
	return d.Normal()
}

type descriptorReader struct {
	dec *msgpack.Decoder
	err error
}

func (r *descriptorReader) value(name string, d *kv.Descriptor) {
	switch name {
	case fieldName:
		d.Name = r.str()
	case fieldWeights:
		d.Weights = r.hash()
	case fieldArchitecture:
		d.Architecture = r.str()
	case fieldTokenizer:
		d.Tokenizer = r.hash()
	case fieldRoPEType:
		d.RoPE.Type = r.str()
	case fieldRoPEDims:
		d.RoPE.Dims = r.num()
	case fieldRoPEBase:
		d.RoPE.Base = r.f32()
	case fieldRoPEScale:
		d.RoPE.Scale = r.f32()
	case fieldRoPEScaling:
		d.RoPE.Scaling = r.str()
	case fieldRoPEFactors:
		d.RoPE.FreqFactors = r.hash()
	case fieldRotated:
		v, err := r.dec.DecodeBool()
		d.Rotated = v
		r.fail(err)
	case fieldShard:
		d.Shard = r.num()
	case fieldShards:
		d.Shards = r.num()
	case fieldStateFormat:
		d.StateFormat = r.str()
	case fieldBlockTokens:
		d.BlockTokens = r.num()
	case fieldGroups:
		for i := range r.length(kv.MaxGroups) {
			var row [2]int
			r.row(row[:])
			r.known(row[0], kv.GroupKind(row[0]).Valid(), "group %d has kind %d", i)
			d.Groups = append(d.Groups, kv.Group{Kind: kv.GroupKind(row[0]), Window: row[1]})
		}
	case fieldTensors:
		for i := range r.length(kv.MaxTensors) {
			var row [5]int
			r.row(row[:])
			r.known(row[1], kv.Role(row[1]).Valid(), "tensor %d has role %d", i)
			r.known(row[2], kv.DType(row[2]).Valid(), "tensor %d has dtype %d", i)
			d.Tensors = append(d.Tensors, kv.Tensor{
				Layer: row[0], Role: kv.Role(row[1]), DType: kv.DType(row[2]), Width: row[3], Group: row[4]})
		}
	default:
		r.fail(ErrVersion)
	}
}

// known refuses the number of a kind, a role or an element type that only another release can have a meaning for; it is stored in a byte.
func (r *descriptorReader) known(n int, valid bool, what string, i int) {
	if !valid || n != int(uint8(n)) {
		r.fail(fmt.Errorf("%w: "+what, ErrVersion, i, n))
	}
}

func (r *descriptorReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *descriptorReader) str() string {
	if r.err != nil {
		return ""
	}
	s, err := r.dec.DecodeString()
	r.fail(err)
	return s
}

func (r *descriptorReader) num() int {
	if r.err != nil {
		return 0
	}
	n, err := r.dec.DecodeInt64()
	r.fail(err)
	if n != int64(int(n)) {
		r.fail(fmt.Errorf("%d is out of range", n))
	}
	return int(n)
}

func (r *descriptorReader) f32() float32 {
	if r.err != nil {
		return 0
	}
	f, err := r.dec.DecodeFloat32()
	r.fail(err)
	return f
}

func (r *descriptorReader) hash() (h kv.Hash) {
	if r.err != nil {
		return h
	}
	n, err := r.dec.DecodeBytesLen() // DecodeBytes would allocate what the length claims
	if err == nil && n != len(h) {
		err = fmt.Errorf("a hash of %d bytes, expected %d", max(n, 0), len(h))
	}
	if err == nil {
		err = r.dec.ReadFull(h[:])
	}
	r.fail(err)
	return h
}

func (r *descriptorReader) length(limit int) int {
	if r.err != nil {
		return 0
	}
	n, err := r.dec.DecodeArrayLen()
	r.fail(err)
	if n > limit {
		r.fail(fmt.Errorf("%d entries, at most %d", n, limit))
		return 0
	}
	return max(n, 0)
}

func (r *descriptorReader) row(out []int) {
	if n := r.length(len(out)); n != len(out) && r.err == nil {
		r.fail(fmt.Errorf("a row of %d numbers, expected %d", n, len(out)))
	}
	for i := range out {
		out[i] = r.num()
	}
}
