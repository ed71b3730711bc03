package trace

// A Simulation says what is kept and how it is counted.
type Simulation struct {
	Capacity    int // blocks that fit; the last one of a prompt counts as one, however short it is
	BlockTokens int
	Policy      Policy

	// TouchPath counts a hit of every block of the prefix found and ranks it anew. The database touches only the
	// deepest one, so this is for comparison.
	TouchPath bool

	// Remember keeps the hit counts of evicted blocks for ever, so that a block that comes back has its history, and
	// its coming back counts as a hit. The database forgets what it evicts, so this is for comparison.
	Remember bool

	// Clairvoyant replaces the policy by one that knows the requests to come: the leaf that is needed last goes first.
	// It is a ceiling to compare with.
	Clairvoyant bool

	variant variant
}

// A variant departs from the rules that [Simulation.Run] states, to see what a rule is worth.
type variant struct {
	evictAfter  bool // a block is stored first, then another one goes
	noHandDown  bool // a parent that becomes a leaf keeps its own recency
	unprotected bool // the request's own path may go
	lowestLeaf  bool // the ageing value is the rank of the lowest leaf, as after a restart
	slowClock   bool // the clock ticks once a request, not with every touch and insertion
}

// A Result counts what a simulation found.
type Result struct {
	Requests  int
	Blocks    int    // of all requests
	Hits      int    // blocks found
	Cost      uint64 // to compute all blocks, see [Cost]
	Saved     uint64 // the cost of the blocks found
	Evictions int
	Refused   int // blocks not stored because nothing but the request's own path was left to evict
}

// HitRate is the share of blocks that were found.
func (r Result) HitRate() float64 { return float64(r.Hits) / float64(max(r.Blocks, 1)) }

// SavedRate is the share of the cost of computing everything that was saved.
func (r Result) SavedRate() float64 { return float64(r.Saved) / float64(max(r.Cost, 1)) }

// Cost is what it takes to compute a block of tokens at a depth, in units of 1/8192 of a token at depth 0. Attention
// reads every row before it, so a token at depth 8192 is taken to cost twice one at depth 0.
func Cost(depth, tokens int) uint64 { return uint64(tokens) * uint64(8192+depth) }

type store struct {
	Simulation
	blocks []block // by id; ids are dense
	leaves leafOrder
	stored int
	clock  uint64
	ageing uint64
	future *future // nil unless clairvoyant
	Result
}

// Run runs the requests in order through a store that holds nothing at first.
//
// A request looks up its longest stored prefix, touches the deepest block found, and stores the missing blocks in
// order. Only leaves go, lowest rank first, before a block is stored that would not fit. The request's own path is safe
// until the request is done, because its deepest block is. When a parent loses its last child it becomes a leaf, takes
// over the child's recency if that is later, and is ranked.
func (s Simulation) Run(requests []Request) Result {
	st := newStore(s, requests)
	for _, r := range requests {
		st.request(r)
	}
	return st.Result
}

func newStore(s Simulation, requests []Request) *store {
	st := &store{Simulation: s, blocks: make([]block, Distinct(requests))}
	if s.Clairvoyant {
		st.future = newFuture(requests)
	}
	return st
}

func (s *store) request(r Request) {
	s.Requests++
	if s.variant.slowClock {
		s.clock++
	}
	found := 0
	for found < len(r.Blocks) && s.blocks[r.Blocks[found]].stored {
		found++
	}
	for i := range r.Blocks {
		cost := Cost(i*s.BlockTokens, s.tokens(r, i))
		s.Blocks++
		s.Cost += cost
		if i < found {
			s.Hits++
			s.Saved += cost
		}
	}

	var deepest *block
	if found > 0 {
		deepest = &s.blocks[r.Blocks[found-1]]
		s.shield(deepest)
		s.tick()
		if s.TouchPath {
			for _, id := range r.Blocks[:found-1] {
				s.touch(&s.blocks[id])
			}
		}
		s.touch(deepest)
	}
	for i := found; i < len(r.Blocks); i++ {
		if s.future != nil && s.future.rank(r.Blocks[i], s.Requests) == 0 {
			break // never needed again, and nor is what follows it
		}
		fits := s.variant.evictAfter || s.makeRoom(1)
		if !fits || deepest != nil && !deepest.stored {
			s.Refused += len(r.Blocks) - i
			break
		}
		deepest = s.insert(r.Blocks[i], deepest, i*s.BlockTokens, s.tokens(r, i))
		if s.variant.evictAfter {
			s.makeRoom(0)
		}
	}
	if deepest != nil {
		deepest.shielded = false
		if deepest.stored && deepest.children == 0 {
			s.leaves.add(deepest)
		}
	}
}

// tokens is the number of tokens in block i of a request.
func (s *store) tokens(r Request, i int) int {
	return min(s.BlockTokens, r.PromptTokens-i*s.BlockTokens)
}

func (s *store) tick() {
	if !s.variant.slowClock {
		s.clock++
	}
}

// shield takes b, the deepest block of the request in progress, out of the leaves.
func (s *store) shield(b *block) {
	if s.variant.unprotected {
		if b.children == 0 {
			s.leaves.add(b)
		}
		return
	}
	b.shielded = true
	s.leaves.remove(b)
}

func (s *store) touch(b *block) {
	b.Hits++
	b.Touched = s.clock
	s.rank(b, Touched)
}

func (s *store) insert(id uint32, parent *block, depth, tokens int) *block {
	s.tick()
	s.stored++
	b := &s.blocks[id]
	before := *b
	*b = block{id: id, key: mix(uint64(id)), parent: -1, stored: true, place: -1}
	b.Birth, b.Touched = s.clock, s.clock
	b.Depth, b.Tokens = uint32(depth), uint32(tokens)
	if parent != nil {
		b.parent = int64(parent.id)
		parent.children++
		parent.shielded = false
		s.leaves.remove(parent)
	}
	if s.Remember && before.Birth > 0 {
		b.Hits = before.Hits + 1
	}
	s.rank(b, Inserted)
	s.shield(b)
	return b
}

// makeRoom evicts until this many more blocks fit. It reports whether they do.
func (s *store) makeRoom(more int) bool {
	for s.stored+more > s.Capacity {
		b := s.leaves.lowest()
		if b == nil {
			return false
		}
		s.leaves.remove(b)
		b.stored = false
		s.stored--
		s.Evictions++
		s.ageing = max(s.ageing, b.Rank)
		if b.parent < 0 {
			continue
		}
		p := &s.blocks[b.parent]
		p.children--
		if p.children == 0 {
			if !s.variant.noHandDown {
				p.Touched = max(p.Touched, b.Touched)
			}
			s.rank(p, Bared)
			if !p.shielded {
				s.leaves.add(p)
			}
		}
	}
	return true
}

func (s *store) rank(b *block, e Event) {
	l := b.Leaf
	l.Event, l.Clock, l.Ageing = e, s.clock, s.ageing
	if lowest := s.leaves.lowest(); s.variant.lowestLeaf && lowest != nil {
		l.Ageing = lowest.Rank
	}
	if s.future != nil {
		b.Rank = s.future.rank(b.id, s.Requests)
	} else {
		b.Rank = s.Policy.Rank(l)
	}
	s.leaves.moved(b)
}
