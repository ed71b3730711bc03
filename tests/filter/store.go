package main

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// store is an index of many blocks on disk, and their keys.
type store struct {
	name        string
	ix          *index.Index
	hasher      kv.Hasher
	model       kv.Fingerprint
	blockTokens int
	keys        keys
	known       map[kv.Key]bool
	late        []index.Entry // not in the index yet
}

// chunkTokens is how much a coarse key stands for.
const chunkTokens = 1024

func newStore(name, dir string, blockTokens int) (*store, error) {
	ix, err := index.Create(index.Options{Path: filepath.Join(dir, name+".db"), UUID: kv.UUID{1}, Logger: slog.New(slog.DiscardHandler)}, index.Applied{})
	return &store{
		name: name, ix: ix, hasher: kv.NewHasher(kv.Seed{1}), model: kv.Fingerprint{1}, blockTokens: blockTokens,
		keys: keys{chunk: chunkTokens / blockTokens}, known: map[kv.Key]bool{},
	}, err
}

// add stores the prompt's blocks.
func (s *store) add(p *kv.Prompt) error {
	c := s.hasher.Chain(s.model, s.blockTokens, p)
	if k := c.Opening(); !s.known[k] {
		s.known[k] = true
		s.keys.openings = append(s.keys.openings, k)
	}
	for i := range c.Len() {
		k := c.Key(i)
		if s.known[k] {
			continue
		}
		s.known[k] = true
		s.keys.blocks = append(s.keys.blocks, k)
		if (i+1)%s.keys.chunk == 0 {
			s.keys.ends = append(s.keys.ends, k)
		}
		start, end := c.Block(i)
		n := len(s.keys.blocks)
		s.late = append(s.late, index.Entry{
			Key: k, Parent: c.Parent(i), Model: s.model, First: uint32(start), Tokens: uint16(end - start), RowCount: uint16(end - start),
			Seq: uint64(n), Rank: uint64(n), Loc: index.Loc{Segment: uint64(n >> 10), Offset: int64(n&1023) << 15, Length: 32 << 10},
			Hashes: s.hasher.AppendTokenHashes(nil, p, start, end),
		})
	}
	if len(s.late) < 100_000 {
		return nil
	}
	return s.flush()
}

// flush writes what add has gathered.
func (s *store) flush() error {
	err := s.ix.Update(func(t *index.Txn) error {
		for _, e := range s.late {
			if err := t.Put(e); err != nil {
				return err
			}
		}
		return nil
	})
	s.late = s.late[:0]
	if err != nil {
		return err
	}
	return s.ix.Checkpoint(context.Background(), index.Applied{LSN: uint64(len(s.keys.blocks))})
}

// stored is how many leading blocks of the prompt are there, by the keys alone.
func (s *store) stored(p *kv.Prompt) int {
	c := s.hasher.Chain(s.model, s.blockTokens, p)
	n := 0
	for n < c.Len() && s.known[c.Key(n)] {
		n++
	}
	return n
}

// evict takes the prompt's blocks away, the last one first, down to block from. Filters do not notice.
func (s *store) evict(p *kv.Prompt, from int) error {
	c := s.hasher.Chain(s.model, s.blockTokens, p)
	return s.ix.Update(func(t *index.Txn) error {
		for i := c.Len() - 1; i >= from; i-- {
			if err := t.Remove(c.Key(i), 0); err != nil {
				return err
			}
			delete(s.known, c.Key(i))
		}
		return nil
	})
}
