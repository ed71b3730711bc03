package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

func dormouse() peer {
	return peer{
		name: "dormouse", label: "Dormouse, INT8 (default)", ours: true, lossy: true,
		note: "defaults: Q8_0, every block's identity and checksum compared on the way; kernel " + quant.Kernel() +
			". Durability is Power: Put returns when all is on the disk. Get is Match and Restore of the whole prompt, absent is Match and Close.",
		open: func(dir string, j job, s step) (store, error) { return openDormouse(dir, j, 0, s) },
	}
}

func dormouseRaw() peer {
	return peer{
		name: "dormouse_raw", label: "Dormouse, raw f16", ours: true,
		note: "Codec: Raw, else the same.",
		open: func(dir string, j job, s step) (store, error) {
			return openDormouse(dir, j, quant.Raw, s)
		},
	}
}

type dormouseStore struct {
	db       *db.Store
	model    *db.Model
	tokens   []kv.Token
	eachSync bool
}

func openDormouse(dir string, j job, codec quant.Codec, order step) (store, error) {
	ctx := context.Background()
	o := db.Options{Durability: db.Power, Codec: codec}
	if need := 2 * j.bytes(); need > 4<<30 { // eviction is not what is measured
		o.Budget = need
	}
	s, err := db.Open(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	desc := kv.Descriptor{
		Name: "peers", Weights: kv.Hash{1}, Architecture: "peers", Tokenizer: kv.HashOf("peers"), RoPE: kv.RoPE{Type: kv.NoRoPE},
		BlockTokens: blockTokens,
	}
	for layer := range layers {
		for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
			desc.Tensors = append(desc.Tensors, kv.Tensor{Layer: layer, Role: role, DType: kv.F16, Width: width})
		}
	}
	m, err := s.Register(ctx, desc)
	if err != nil {
		s.Close()
		return nil, err
	}
	d := &dormouseStore{db: s, model: m.Model, tokens: make([]kv.Token, j.Blocks*blockTokens), eachSync: order == stepPutEach}
	for i := range d.tokens {
		d.tokens[i] = kv.Token(i * 7 % 50_000)
	}
	return d, nil
}

func (d *dormouseStore) put(src *kvCache) error {
	step := src.job.Blocks
	if d.eachSync {
		step = 1
	}
	for b := 0; b < src.job.Blocks; b += step {
		from, to := b*blockTokens, (b+step)*blockTokens
		rows := make(kv.Rows, tensors)
		for t := range rows {
			rows[t] = kv.Packed(from, to-from, src.tensors[t][from*rowBytes:to*rowBytes])
		}
		got, err := d.model.Put(context.Background(), kv.Prompt{Tokens: d.tokens[:to]}, rows, db.PutOptions{})
		if err != nil {
			return err
		}
		if got.Tokens != to {
			return fmt.Errorf("put stored %d tokens of %d", got.Tokens, to)
		}
	}
	return nil
}

func (d *dormouseStore) get(dst *kvCache) error {
	ctx := context.Background()
	m, err := d.model.Match(ctx, kv.Prompt{Tokens: d.tokens}, db.MatchOptions{})
	if err != nil {
		return err
	}
	defer m.Close()
	rows := make(kv.Rows, tensors)
	for t := range rows {
		rows[t] = kv.Packed(0, len(d.tokens), dst.tensors[t])
	}
	got, err := m.Restore(ctx, rows)
	if err != nil {
		return err
	}
	if got.Tokens != len(d.tokens) {
		return fmt.Errorf("restore gave %d tokens of %d: %s", got.Tokens, len(d.tokens), got.Reason)
	}
	return m.Close()
}

func (d *dormouseStore) absent(n int) (time.Duration, error) {
	ctx := context.Background()
	prompts := make([]kv.Prompt, n)
	for i := range prompts {
		tokens := make([]kv.Token, blockTokens)
		for k := range tokens {
			tokens[k] = kv.Token(60_000 + i + k)
		}
		prompts[i].Tokens = tokens
	}
	start := time.Now()
	for i := range prompts {
		m, err := d.model.Match(ctx, prompts[i], db.MatchOptions{})
		if err != nil {
			return 0, err
		}
		if m.Tokens() != 0 {
			return 0, errFound(i)
		}
		if err := m.Close(); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

func (d *dormouseStore) close() error { return d.db.Close() }
