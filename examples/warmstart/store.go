package main

import (
	"context"
	"errors"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/tiny"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// promptStore keeps the KV cache of one model's prompts on disk.
type promptStore struct {
	store *db.Store
	model *db.Model
}

// openStore opens the store in dir, or makes one.
func openStore(ctx context.Context, dir string, desc kv.Descriptor) (*promptStore, error) {
	store, err := db.Open(ctx, dir, db.Options{Budget: 1 << 30})
	if err != nil {
		return nil, err
	}
	model, err := store.Register(ctx, desc)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &promptStore{store, model.Model}, nil
}

// restore fills cache with the longest prefix of the prompt that is stored, and returns how many tokens that is. It
// leaves out the last token: the runtime computes that one, since logits are not stored. The caller closes the match.
func (s *promptStore) restore(ctx context.Context, prompt []int32, cache *tiny.Cache) (*db.Match, int, error) {
	match, err := s.model.Match(ctx, kv.Tokens(prompt...), db.MatchOptions{Limit: len(prompt) - 1})
	if err != nil {
		return nil, 0, err
	}
	got, err := match.Restore(ctx, rows(cache, len(prompt)))
	if err != nil {
		return nil, 0, errors.Join(err, match.Close())
	}
	return match, got.Tokens, nil
}

// save stores what of the prompt is not stored yet. When it returns, the rows outlive the process.
func save(ctx context.Context, match *db.Match, prompt []int32, cache *tiny.Cache, codec quant.Codec) (db.PutResult, error) {
	return match.Extend(ctx, kv.Tokens(prompt...), rows(cache, len(prompt)), db.PutOptions{Codec: codec})
}

// describe names all that makes a KV cache of this model useless to any other: the store never mixes them up.
func describe(m *tiny.Model, t *tiny.Tokenizer) kv.Descriptor {
	weights, vocabulary := m.Hash(), t.Hash()
	d := kv.Descriptor{
		Name:         "tiny",
		Weights:      kv.Hash(weights[:16]),
		Architecture: "tiny",
		Tokenizer:    kv.Hash(vocabulary[:16]),
		RoPE:         kv.RoPE{Type: "neox", Dims: m.HeadDim, Base: m.RoPEBase, Scale: 1, Scaling: "none"},
	}
	for l := range m.Layers {
		d.Tensors = append(d.Tensors,
			kv.Tensor{Layer: l, Role: kv.RoleK, DType: kv.F16, Width: m.KVWidth()},
			kv.Tensor{Layer: l, Role: kv.RoleV, DType: kv.F16, Width: m.KVWidth()})
	}
	return d
}

// rows shows the store where the first n rows of each tensor lie in the transformer's own memory: nothing is copied in
// between. The order is that of the descriptor's tensors.
func rows(c *tiny.Cache, n int) kv.Rows {
	var r kv.Rows
	for l := range c.K {
		r = append(r, kv.Packed(0, n, c.K[l]), kv.Packed(0, n, c.V[l]))
	}
	return r
}
