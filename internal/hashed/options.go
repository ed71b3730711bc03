package hashed

import "github.com/dormousekv/dormouse/kv"

// Options are the size of a runtime and which model it is. The zero value is a small one.
type Options struct {
	Sequences  int // 0: 16
	Cells      int // 0: 8192
	Batch      int // 0: 64
	Trained    int // positions; 0: not known
	Window     int // a row sees those less than so many positions before it; 0: all. What is behind stays in the cache and is stored
	Vocabulary int // tokens from 0; 0: 64

	Weights     string // another name is another model: its rows differ, and its fingerprint
	Tokenizer   string // another name has another hash
	BlockTokens int    // of the store; 0: 16
	RowBytes    int    // that a row takes in the store, a multiple of 16, for tests of the budget; 0: 16
	Missing     string // kv.Limits.Missing
}

func (o Options) filled() Options {
	for _, f := range []struct {
		field *int
		value int
	}{{&o.Sequences, 16}, {&o.Cells, 8192}, {&o.Batch, 64}, {&o.Vocabulary, 64}, {&o.BlockTokens, 16}, {&o.RowBytes, len(Row{})}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return o
}

// Descriptor is the model's: one tensor of opaque bytes, so that a row comes back as it was.
func (o Options) Descriptor() kv.Descriptor {
	o = o.filled()
	return kv.Descriptor{
		Name:         "hashed",
		Weights:      kv.HashOf("hashed weights " + o.Weights),
		Architecture: "hashed",
		Tokenizer:    kv.HashOf("hashed tokenizer " + o.Tokenizer),
		RoPE:         kv.RoPE{Type: kv.NoRoPE},
		BlockTokens:  o.BlockTokens,
		Tensors:      []kv.Tensor{{Role: kv.RoleK, DType: kv.Bytes, Width: o.RowBytes}},
	}
}
