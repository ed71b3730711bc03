package trace

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A plainStore is the simulation as one would write it without thinking of speed: a map of what is stored, searched from
// end to end for every eviction.
type plainStore struct {
	capacity int
	policy   Policy
	stored   map[uint32]*plainBlock
	clock    uint64
	ageing   uint64
	hits     int
	refused  int
	evicted  int
}

type plainBlock struct {
	Leaf
	parent uint32
	root   bool
}

func (s *plainStore) children(id uint32) int {
	n := 0
	for _, b := range s.stored {
		if !b.root && b.parent == id {
			n++
		}
	}
	return n
}

func (s *plainStore) rank(b *plainBlock, e Event) {
	b.Event, b.Clock, b.Ageing = e, s.clock, s.ageing
	b.Rank = s.policy.Rank(b.Leaf)
}

func (s *plainStore) evictOne(path []uint32) bool {
	var victim uint32
	var lowest *plainBlock
	for id, b := range s.stored {
		if slices.Contains(path, id) || s.children(id) > 0 {
			continue
		}
		if lowest == nil || b.Rank < lowest.Rank || b.Rank == lowest.Rank && mix(uint64(id)) < mix(uint64(victim)) {
			victim, lowest = id, b
		}
	}
	if lowest == nil {
		return false
	}
	delete(s.stored, victim)
	s.evicted++
	s.ageing = max(s.ageing, lowest.Rank)
	if !lowest.root && s.children(lowest.parent) == 0 {
		p := s.stored[lowest.parent]
		p.Touched = max(p.Touched, lowest.Touched)
		s.rank(p, Bared)
	}
	return true
}

func (s *plainStore) request(r Request) {
	found := 0
	for found < len(r.Blocks) && s.stored[r.Blocks[found]] != nil {
		found++
	}
	s.hits += found
	if found > 0 {
		b := s.stored[r.Blocks[found-1]]
		s.clock++
		b.Hits++
		b.Touched = s.clock
		s.rank(b, Touched)
	}
	for i := found; i < len(r.Blocks); i++ {
		for len(s.stored) >= s.capacity {
			if !s.evictOne(r.Blocks[:i]) {
				s.refused += len(r.Blocks) - i
				return
			}
		}
		s.clock++
		b := &plainBlock{root: i == 0}
		if i > 0 {
			b.parent = r.Blocks[i-1]
		}
		b.Birth, b.Touched = s.clock, s.clock
		b.Depth, b.Tokens = uint32(i*MooncakeBlockTokens), uint32(min(MooncakeBlockTokens, r.PromptTokens-i*MooncakeBlockTokens))
		s.stored[r.Blocks[i]] = b
		s.rank(b, Inserted)
	}
}

// The simulation does what the plain store does, keeps what it stores closed, and stays within its capacity.
func TestSimulationEqualsPlainStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requests := drawRequests(t)
		policy := rapid.SampledFrom([]Policy{FIFO, LRU, LFU, SegmentedLRU, LFUDA, CostAware}).Draw(t, "policy")
		capacity := rapid.IntRange(1, 20).Draw(t, "capacity")
		plain := &plainStore{capacity: capacity, policy: policy, stored: map[uint32]*plainBlock{}}
		fast := newStore(Simulation{Capacity: capacity, BlockTokens: MooncakeBlockTokens, Policy: policy}, requests)
		for i, r := range requests {
			plain.request(r)
			fast.request(r)
			if fast.Hits != plain.hits || fast.Refused != plain.refused || fast.Evictions != plain.evicted {
				t.Fatalf("%s, request %d: hits %d, refused %d, evictions %d; the plain store has %d, %d, %d", policy.Name, i,
					fast.Hits, fast.Refused, fast.Evictions, plain.hits, plain.refused, plain.evicted)
			}
			count := 0
			for id := range fast.blocks {
				b := &fast.blocks[id]
				if b.stored != (plain.stored[uint32(id)] != nil) {
					t.Fatalf("%s, request %d: block %d stored: %v", policy.Name, i, id, b.stored)
				}
				if !b.stored {
					continue
				}
				count++
				if b.parent >= 0 && !fast.blocks[b.parent].stored {
					t.Fatalf("block %d is stored without its parent %d", id, b.parent)
				}
				if b.Rank != plain.stored[uint32(id)].Rank {
					t.Fatalf("block %d has rank %d, in the plain store %d", id, b.Rank, plain.stored[uint32(id)].Rank)
				}
			}
			if count != fast.stored || count > capacity {
				t.Fatalf("%d blocks stored, counted %d, capacity %d", count, fast.stored, capacity)
			}
		}
	})
}

// The cost-aware rank never lies below what was evicted, grows with hits, depth and time, is LRU's without either, and
// gives at most 2.75 lifetimes more than LRU does.
func TestCostAwareBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Leaf{
			Event:  rapid.SampledFrom([]Event{Inserted, Touched}).Draw(t, "event"),
			Clock:  rapid.Uint64Range(0, 1<<48).Draw(t, "clock"),
			Ageing: rapid.Uint64Range(0, 1<<58).Draw(t, "ageing"),
			Hits:   rapid.Uint32().Draw(t, "hits"),
			Depth:  rapid.Uint32().Draw(t, "depth"),
		}
		rank := CostAware.Rank(l)
		now := max(l.Clock<<costFractionBits, l.Ageing)
		if rank < now || rank < l.Ageing {
			t.Fatalf("rank %d, now %d", rank, now)
		}
		if bonus := rank - now; bonus > (now-l.Ageing)/4*11 {
			t.Fatalf("bonus %d of a lifetime of %d", bonus, now-l.Ageing)
		}
		plain := l
		plain.Hits, plain.Depth = 0, 0
		if got := CostAware.Rank(plain); got != now {
			t.Fatalf("rank %d without hits at depth 0, now is %d", got, now)
		}
		for name, more := range map[string]Leaf{
			"hits":  {Event: l.Event, Clock: l.Clock, Ageing: l.Ageing, Depth: l.Depth, Hits: max(l.Hits, l.Hits+1)},
			"depth": {Event: l.Event, Clock: l.Clock, Ageing: l.Ageing, Depth: max(l.Depth, l.Depth+512), Hits: l.Hits},
			"time":  {Event: l.Event, Clock: l.Clock + 1, Ageing: l.Ageing, Depth: l.Depth, Hits: l.Hits},
		} {
			if got := CostAware.Rank(more); got < rank {
				t.Fatalf("with more %s the rank falls from %d to %d", name, rank, got)
			}
		}
	})
}
