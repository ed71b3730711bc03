package main

import (
	"fmt"

	"github.com/dormousekv/dormouse/kv"
)

// windowRows is the sliding window of the models that have one.
const windowRows = 40

// models are what the store keeps rows of: all kinds of groups, several element types, and two versions of one name.
func models(blockTokens int) []kv.Descriptor {
	all, window, state := kv.Group{Kind: kv.All}, kv.Group{Kind: kv.Window, Window: windowRows}, kv.Group{Kind: kv.StateAt}
	kvOf := func(layer int, t kv.DType, group int) []kv.Tensor {
		return []kv.Tensor{
			{Layer: layer, Role: kv.RoleK, DType: t, Width: 32, Group: group},
			{Layer: layer, Role: kv.RoleV, DType: t, Width: 32, Group: group},
		}
	}
	opaque := kv.Tensor{Layer: 9, Role: kv.RoleState, DType: kv.Bytes, Group: 1}
	opaqueOf3 := opaque
	opaqueOf3.Group = 2
	list := []kv.Descriptor{
		{Name: "plain", Tensors: append(kvOf(0, kv.F16, 0), kvOf(1, kv.F16, 0)...)},
		{Name: "window", Groups: []kv.Group{all, window}, Tensors: append(kvOf(0, kv.BF16, 0), kvOf(1, kv.F16, 1)...)},
		{Name: "state", Groups: []kv.Group{all, state}, Tensors: append(kvOf(0, kv.F32, 0), opaque)},
		{Name: "plain", Weights: kv.Hash{2}, Tensors: kvOf(0, kv.F16, 0)}, // a newer version
		{Name: "opaque", StateFormat: "1", Groups: []kv.Group{all, state}, Tensors: []kv.Tensor{opaque}},
		{Name: "three", Groups: []kv.Group{all, window, state}, Tensors: append(append(kvOf(0, kv.BF16, 0), kvOf(1, kv.BF16, 1)...), opaqueOf3)},
	}
	for i := range list {
		d := &list[i]
		d.Architecture, d.Tokenizer, d.RoPE.Type, d.BlockTokens = "crash", kv.HashOf("crash"), kv.NoRoPE, blockTokens
		if d.Weights == (kv.Hash{}) {
			d.Weights = kv.HashOf("crash")
		}
		if err := d.Validate(); err != nil {
			panic(fmt.Sprint("models: ", err))
		}
		normal, err := list[i].Normal()
		if err != nil {
			panic(fmt.Sprint("models: ", err))
		}
		list[i] = normal
	}
	return list
}

// has reports whether a model has a group of that kind.
func has(d *kv.Descriptor, kind kv.GroupKind) bool {
	for _, g := range d.Groups {
		if g.Kind == kind {
			return true
		}
	}
	return false
}
