package kv

import (
	"encoding/binary"
	"fmt"
	"math"
)

// fingerprintVersion is bumped when the fields below change, so that old and new fingerprints never collide.
const fingerprintVersion = 2

// Fingerprint is the SHA-256, cut to 128 bits, of every field but the name. d must be normal ([Descriptor.Normal]).
func (d *Descriptor) Fingerprint() Fingerprint {
	var b []byte
	u32 := func(v uint32) { b = binary.LittleEndian.AppendUint32(b, v) }
	str := func(s string) { u32(uint32(len(s))); b = append(b, s...) }

	u32(fingerprintVersion)
	b = append(b, d.Weights[:]...)
	str(d.Architecture)
	b = append(b, d.Tokenizer[:]...)
	str(d.RoPE.Type)
	u32(uint32(d.RoPE.Dims))
	u32(math.Float32bits(d.RoPE.Base))
	u32(math.Float32bits(d.RoPE.Scale))
	str(d.RoPE.Scaling)
	b = append(b, d.RoPE.FreqFactors[:]...)
	if d.Rotated {
		u32(1)
	} else {
		u32(0)
	}
	u32(uint32(d.Shard))
	u32(uint32(d.Shards))
	str(d.StateFormat)
	u32(uint32(d.BlockTokens))
	u32(uint32(len(d.Groups)))
	for _, g := range d.Groups {
		u32(uint32(g.Kind))
		u32(uint32(g.Window))
	}
	u32(uint32(len(d.Tensors)))
	for _, t := range d.Tensors {
		u32(uint32(t.Layer))
		u32(uint32(t.Role))
		u32(uint32(t.DType))
		u32(uint32(t.Width))
		u32(uint32(t.Group))
	}
	return sum(b)
}

// Difference is one field in which two descriptors differ.
type Difference struct {
	Field      string
	Have, Want string
}

func (x Difference) String() string { return fmt.Sprintf("%s: %s, was %s", x.Field, x.Want, x.Have) }

// Diff lists the fields in which want differs from d, the name left out. Empty means: the same fingerprint.
// Both must be normal.
func (d *Descriptor) Diff(want *Descriptor) []Difference {
	var out []Difference
	add := func(field string, have, want any) {
		if have != want {
			out = append(out, Difference{field, fmt.Sprint(have), fmt.Sprint(want)})
		}
	}
	add("weights", d.Weights, want.Weights)
	add("architecture", d.Architecture, want.Architecture)
	add("tokenizer", d.Tokenizer, want.Tokenizer)
	add("rope type", d.RoPE.Type, want.RoPE.Type)
	add("rope dims", d.RoPE.Dims, want.RoPE.Dims)
	add("rope base", d.RoPE.Base, want.RoPE.Base)
	add("rope scale", d.RoPE.Scale, want.RoPE.Scale)
	add("rope scaling", d.RoPE.Scaling, want.RoPE.Scaling)
	add("rope frequency factors", d.RoPE.FreqFactors, want.RoPE.FreqFactors)
	add("kv rotation", d.Rotated, want.Rotated)
	add("shard", fmt.Sprintf("%d of %d", d.Shard, d.Shards), fmt.Sprintf("%d of %d", want.Shard, want.Shards))
	add("state format", d.StateFormat, want.StateFormat)
	add("block tokens", d.BlockTokens, want.BlockTokens)
	add("groups", fmt.Sprint(d.Groups), fmt.Sprint(want.Groups))
	add("tensors", len(d.Tensors), len(want.Tensors))
	for i := range min(len(d.Tensors), len(want.Tensors)) {
		a, b := d.Tensors[i], want.Tensors[i]
		if a == b {
			continue
		}
		show := func(t Tensor) string {
			return fmt.Sprintf("%s %s x %d in group %d", t, t.DType, t.Width, t.Group)
		}
		add(fmt.Sprintf("tensor %d", i), show(a), show(b))
		break // the first says it all: a changed dtype changes every one
	}
	return out
}
