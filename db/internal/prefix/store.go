package prefix

import (
	"slices"
	"sync/atomic"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Store is what a search looks at. It is safe for concurrent use; its fields do not change.
type Store struct {
	Hasher   kv.Hasher
	Index    *index.Index
	Bloom    *atomic.Pointer[index.Bloom] // knows every block of the index's current version; nil: any block may be stored
	Segments *segments.Set

	// WasDamaged says, at once, whether a record of a block was once found damaged. Then the index knows whether it still is.
	WasDamaged func(kv.Key) bool
	// Report takes the error of a read, and returns the one that users are to see: what is gone is told from what is damaged, which is logged
	// and flagged.
	Report func(key kv.Key, group uint8, at index.Loc, err error) error

	Collisions *atomic.Int64 // counts keys that belonged to another prefix
	BloomFalse *atomic.Int64 // counts the blocks that the filter did not rule out, and that are not stored
}

// Model is a model whose prompts are looked up.
type Model struct {
	Fingerprint kv.Fingerprint
	Desc        *kv.Descriptor // in normal form
	// GroupTensors are the indexes of each group's tensors, in the order of a record's planes.
	GroupTensors [][]int
}

func (m *Model) windows() bool {
	return slices.ContainsFunc(m.Desc.Groups, func(g kv.Group) bool { return g.Kind == kv.Window })
}

// Look gives v the current version of the index, and returns the Bloom filter that knows all of it; nil: any block may be stored.
func (s *Store) Look(v *index.View) *index.Bloom {
	for {
		b := s.Bloom.Load()
		if s.Index.Look(v); s.Bloom.Load() == b {
			return b
		}
		v.Release()
	}
}

// MayHold asks the Bloom filter whether a block may be stored.
func (s *Store) MayHold(k kv.Key) bool {
	b := s.Bloom.Load()
	return b == nil || b.MayContain(k)
}

// SharedTokens reads the tokens of a block's record, and returns how many of them the prompt has at the same positions, from the
// block's first on.
func (s *Store) SharedTokens(p *kv.Prompt, x index.Entry) (n int, err error) {
	err = s.Segments.Read(x.Loc, func(r *segments.Record) error {
		n = r.MatchTokens(p, int(x.First))
		return nil
	})
	return n, err
}
