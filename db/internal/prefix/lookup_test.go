package prefix

import (
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// A search sees the store at one moment, though all is removed and the Bloom filter built anew on the way.
func TestSearchOutlivesTheFilter(t *testing.T) {
	s, m, p := stored(t, 64)
	l := s.Lookup(m, &p, 64, false)
	defer l.Free()
	l.chain.Reset(s.Hasher, m.Fingerprint, m.Desc.BlockTokens, &p)
	l.open()
	defer l.close()
	if err := s.Index.Update(func(txn *index.Txn) error {
		for i := range 4 {
			if err := txn.Remove(l.chain.Key(3-i), 0); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s.Bloom.Store(index.NewBloom(1000, 0.001))
	if err := l.fullBlocks(); err != nil || len(l.Hits) != 4 {
		t.Errorf("%d blocks, %v, expected the 4 of the moment when the search began", len(l.Hits), err)
	}
}

// stored is a store with the blocks of a prompt of n tokens, of a model with one group. It has no segments: nothing reads rows.
func stored(t *testing.T, n int) (*Store, Model, kv.Prompt) {
	t.Helper()
	d := kv.Descriptor{
		Name: "toy", BlockTokens: 16, Groups: []kv.Group{{Kind: kv.All}},
		Tensors: []kv.Tensor{{Role: kv.RoleK, DType: kv.F16, Width: 32}},
	}
	m := Model{Fingerprint: d.Fingerprint(), Desc: &d, GroupTensors: [][]int{{0}}}
	p := kv.Prompt{Tokens: make([]int32, n)}
	for i := range p.Tokens {
		p.Tokens[i] = int32(i)
	}
	s := &Store{
		Hasher: kv.NewHasher(kv.Seed{1}), Index: index.Memory(), Bloom: new(atomic.Pointer[index.Bloom]),
		WasDamaged: func(kv.Key) bool { return false }, Collisions: new(atomic.Int64), BloomFalse: new(atomic.Int64),
	}
	filter := index.NewBloom(1000, 0.001)
	chain := s.Hasher.Chain(m.Fingerprint, d.BlockTokens, &p)
	filter.Add(chain.Opening())
	err := s.Index.Update(func(txn *index.Txn) error {
		for i := range chain.Len() {
			start, end := chain.Block(i)
			filter.Add(chain.Key(i))
			if err := txn.Put(index.Entry{
				Key: chain.Key(i), Parent: chain.Parent(i), Model: m.Fingerprint, Scope: chain.Scope(i),
				Loc: index.Loc{Segment: 1, Offset: int64(4096 * (i + 1)), Length: 4096}, First: uint32(start), Tokens: uint16(end - start),
				RowCount: uint16(end - start), Seq: uint64(i + 1), Hashes: s.Hasher.AppendTokenHashes(nil, &p, start, end),
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Bloom.Store(filter)
	return s, m, p
}
