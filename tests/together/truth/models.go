package truth

import "github.com/dormousekv/dormouse/kv"

// named is a model without tensors: another one for each name.
func named(name string) kv.Descriptor {
	return kv.Descriptor{
		Name: name, Weights: kv.HashOf(name), Architecture: "test", Tokenizer: kv.HashOf("test"), RoPE: kv.RoPE{Type: kv.NoRoPE},
		BlockTokens: 16,
	}
}

// Plain is a model with one All group: two layers of K and V, of f16 rows of that width (a multiple of 32).
func Plain(name string, width int) kv.Descriptor {
	d := named(name)
	for layer := range 2 {
		d.Tensors = append(d.Tensors,
			kv.Tensor{Layer: layer, Role: kv.RoleK, DType: kv.F16, Width: width},
			kv.Tensor{Layer: layer, Role: kv.RoleV, DType: kv.F16, Width: width})
	}
	return d
}

// Windowed has a third layer with a sliding window of w rows.
func Windowed(name string, width, w int) kv.Descriptor {
	d := Plain(name, width)
	d.Groups = []kv.Group{{Kind: kv.All}, {Kind: kv.Window, Window: w}}
	d.Tensors = append(d.Tensors,
		kv.Tensor{Layer: 2, Role: kv.RoleK, DType: kv.F16, Width: width, Group: 1},
		kv.Tensor{Layer: 2, Role: kv.RoleV, DType: kv.F16, Width: width, Group: 1})
	return d
}

// Opaque has a state that is valid at one token, and nothing that can be cut.
func Opaque(name string) kv.Descriptor {
	d := named(name)
	d.StateFormat = "1"
	d.Groups = []kv.Group{{Kind: kv.All}, {Kind: kv.StateAt}}
	d.Tensors = []kv.Tensor{{Role: kv.RoleState, DType: kv.Bytes, Group: 1}}
	return d
}

// Prompt joins parts to a prompt.
func Prompt(parts ...[]kv.Token) kv.Prompt {
	var p kv.Prompt
	for _, part := range parts {
		p.Tokens = append(p.Tokens, part...)
	}
	return p
}
