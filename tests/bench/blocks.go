package main

import (
	"errors"
	"fmt"
	"math"
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
	past   past
}

// past is how a store came to hold what it holds. What index.db has in free pages depends on it.
type past string

const (
	byPuts        past = ""            // prompts of 128 blocks, few checkpoints
	byCheckpoints past = "checkpoints" // 100 checkpoints between the puts
	byEvictions   past = "evictions"   // and half as many blocks again, which were evicted
	byCompaction  past = "compaction"  // evictions, and then a compaction of all segments
)

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
	if err := r.ensure(b); err != nil {
		return nil, err
	}
	r.stores[n] = b
	return b, nil
}

// ensure builds b, unless it is there from an earlier run.
func (r *run) ensure(b *blockStore) error {
	if b.complete() {
		return nil
	}
	if err := os.RemoveAll(b.dir); err != nil {
		return err
	}
	what := "building a store of " + count(b.blocks) + " blocks"
	if b.past != byPuts {
		what += " by " + string(b.past)
	}
	return r.timed(what, b.build)
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
	if b.past != byPuts { // evictions leave about as many as they should
		return s.Close() == nil && err == nil && math.Abs(float64(st.Blocks)/float64(b.blocks)-1) < 0.05
	}
	ok := err == nil && st.Blocks == int64(b.blocks)
	if ok && b.whole() > 0 {
		n, _, err := s.model.Probe(ctx, b.prompt(b.whole()-1), db.MatchOptions{})
		ok = err == nil && n == manyTokens
	}
	return s.Close() == nil && ok
}

func (b *blockStore) build() (err error) {
	o := options()
	o.CheckpointBytes = max(1<<30, int64(b.blocks)<<12/8) // what is not checkpointed is in memory; a checkpoint writes most of the index
	if b.blocks > fullSize.large {
		o.Budget, o.SegmentBytes = 2*int64(b.blocks)<<12, 0 // segments as such a store has them that nobody told otherwise
	}
	s, err := openStore(b.dir, tiny, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	rows := newKVCache(tiny, manyTokens)
	const perPrompt = manyTokens / blockTokens
	blocks := b.blocks
	if b.past == byEvictions || b.past == byCompaction {
		blocks += blocks / 2
	}
	prompts := (blocks + perPrompt - 1) / perPrompt
	err = parallel(processors(), prompts, func(i int) error {
		n := min(perPrompt, blocks-i*perPrompt) * blockTokens
		_, err := s.put(kv.Prompt{Tokens: tokens(i, n)}, rows.rows(n))
		if err == nil && b.past != byPuts && i%max(1, prompts/100) == 0 {
			err = s.Checkpoint(ctx)
		}
		return err
	})
	if err != nil || blocks == b.blocks {
		return err
	}
	size, err := s.Shrink(ctx, 1<<60)
	for { // a hundredth at a time, with checkpoints between
		st, serr := s.Stats()
		if err = errors.Join(err, serr); err != nil || st.Blocks <= int64(b.blocks) {
			break
		}
		if size, err = s.Shrink(ctx, size-size/100); err == nil {
			err = s.Checkpoint(ctx)
		}
	}
	if err != nil {
		return err
	}
	if b.past == byCompaction {
		_, err = s.Compact(ctx, db.CompactOptions{All: true})
	}
	return err
}
