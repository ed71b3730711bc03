package crashtest

import (
	"fmt"

	"github.com/dormousekv/dormouse/kv"
)

// Toy says of a descriptor what the store wants to know of every model.
func Toy(d kv.Descriptor) kv.Descriptor {
	d.Weights, d.Architecture, d.Tokenizer, d.RoPE.Type = kv.HashOf("toy"), "test", kv.HashOf("toy"), kv.NoRoPE
	return d
}

// Plain is a model with one All group: two layers of K and V.
func Plain() kv.Descriptor {
	d := Toy(kv.Descriptor{Name: "plain", BlockTokens: 16})
	for layer := range 2 {
		d.Tensors = append(d.Tensors,
			kv.Tensor{Layer: layer, Role: kv.RoleK, DType: kv.F16, Width: 32},
			kv.Tensor{Layer: layer, Role: kv.RoleV, DType: kv.F16, Width: 32})
	}
	return d
}

// Windowed adds a sliding window of w rows, and no state.
func Windowed(w int) kv.Descriptor {
	d := Plain()
	d.Name = fmt.Sprintf("window-%d", w)
	d.Groups = []kv.Group{{Kind: kv.All}, {Kind: kv.Window, Window: w}}
	d.Tensors = append(d.Tensors,
		kv.Tensor{Layer: 2, Role: kv.RoleK, DType: kv.F16, Width: 32, Group: 1},
		kv.Tensor{Layer: 2, Role: kv.RoleV, DType: kv.F16, Width: 32, Group: 1})
	return d
}

// Opaque is a model with one StateAt group and nothing that can be cut at a token.
func Opaque() kv.Descriptor {
	return Toy(kv.Descriptor{
		Name: "opaque", StateFormat: "1", BlockTokens: 16,
		Groups:  []kv.Group{{Kind: kv.All}, {Kind: kv.StateAt}},
		Tensors: []kv.Tensor{{Role: kv.RoleState, DType: kv.Bytes, Group: 1}},
	})
}

// Hybrid is a model with rows that can be cut at a token, and a state that cannot.
func Hybrid() kv.Descriptor {
	d := Plain()
	d.Name, d.StateFormat = "hybrid", "1"
	d.Groups = []kv.Group{{Kind: kv.All}, {Kind: kv.StateAt}}
	d.Tensors = append(d.Tensors, kv.Tensor{Layer: 2, Role: kv.RoleState, DType: kv.Bytes, Group: 1})
	return d
}

// Tokens returns n token ids that depend on seed alone.
func Tokens(seed, n int) []kv.Token {
	out := make([]kv.Token, n)
	x := uint64(seed)*0x9e3779b97f4a7c15 + 1
	for i := range out {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		out[i] = kv.Token(x % 1000)
	}
	return out
}

// Concat returns them as one.
func Concat(parts ...[]kv.Token) []kv.Token {
	var out []kv.Token
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}
