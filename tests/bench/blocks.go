package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// manyTokens is the length of the prompts that large stores hold: 128 blocks.
const manyTokens = 8192

// tiny is a model whose rows take next to nothing, so that a million blocks are built in minutes. What a match or an
// opening costs depends on how many blocks there are, not on their rows.
var tiny = kv.Descriptor{
	Name: "tiny", Weights: kv.Hash{2}, Architecture: "bench", Tokenizer: kv.HashOf("bench"), RoPE: kv.RoPE{Type: kv.NoRoPE}, BlockTokens: blockTokens,
	Tensors: []kv.Tensor{{Role: kv.RoleK, DType: kv.Bytes, Width: 8}},
}

// blockStore is a closed store of many blocks. Prompt i has the tokens of number i.
type blockStore struct {
	dir    string
	blocks int
}

// whole is how many prompts have all of their blocks in the store.
func (b *blockStore) whole() int { return b.blocks * blockTokens / manyTokens }

// prompt is one that is stored as a whole.
func (b *blockStore) prompt(i int) kv.Prompt { return kv.Prompt{Tokens: tokens(i, manyTokens)} }

func (b *blockStore) open() (*opened, error) { return openStore(b.dir, tiny, options()) }

// blockStore builds a store of n blocks, or takes the one that is there from an earlier run.
func (r *run) blockStore(n int) (*blockStore, error) {
	if b := r.stores[n]; b != nil {
		return b, nil
	}
	b := &blockStore{dir: filepath.Join(r.dir, fmt.Sprintf("blocks-%d", n)), blocks: n}
	if !b.complete() {
		if err := os.RemoveAll(b.dir); err != nil {
			return nil, err
		}
		if err := r.timed("building a store of "+count(n)+" blocks", b.build); err != nil {
			return nil, err
		}
	}
	r.stores[n] = b
	return b, nil
}

// complete reports whether the store is there and holds what it should.
func (b *blockStore) complete() bool {
	if _, err := os.Stat(b.dir); err != nil {
		return false
	}
	s, err := b.open()
	if err != nil {
		return false
	}
	st, err := s.Stats()
	ok := err == nil && st.Blocks == int64(b.blocks)
	if ok && b.whole() > 0 {
		n, _, err := s.model.Probe(ctx, b.prompt(b.whole()-1), db.MatchOptions{})
		ok = err == nil && n == manyTokens
	}
	return s.Close() == nil && ok
}

func (b *blockStore) build() (err error) {
	o := options()
	o.CheckpointBytes = 1 << 30 // what is not checkpointed is in memory
	s, err := openStore(b.dir, tiny, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	rows := newKVCache(tiny, manyTokens)
	const perPrompt = manyTokens / blockTokens
	return parallel(processors(), (b.blocks+perPrompt-1)/perPrompt, func(i int) error {
		n := min(perPrompt, b.blocks-i*perPrompt) * blockTokens
		_, err := s.put(kv.Prompt{Tokens: tokens(i, n)}, rows.rows(n))
		return err
	})
}
