package trace

// The cost-aware policy counts ranks in 1/256 of a tick of the clock.
const (
	costFractionBits = 8

	costHitWeight   = 128  // each of the first hits adds half a lifetime
	costHitLimit    = 4    // hits that count
	costDepthWeight = 192  // depth adds up to three quarters of a lifetime
	costDepthHalf   = 8192 // tokens before a block at which it adds half of that
)

// CostAware is LRU with lifetimes that differ. LRU gives every block the same time to be used again: from its touch until
// the eviction has come that far. Call that time a lifetime; it is what lies between the rank evicted last and now.
// CostAware adds a part of it for every hit, because a block that came back once comes back again, and a part that grows
// with the depth, because attention makes a deep block dearer to compute.
//
// The lifetime is measured, not configured: it is short in a small store and long in a large one, so the weights need no
// tuning to the capacity. Without hits and at depth 0 this is LRU. No rank is below the highest rank evicted, so nothing
// that was just used goes before what is old, and no bonus lasts for ever.
//
// Good for 2^48 ticks.
var CostAware = Policy{"cost-aware", func(l Leaf) uint64 {
	if l.Event == Bared {
		return max(l.Rank, l.Ageing) // the later of its own and its child's, which is the one evicted just now
	}
	now := max(l.Clock<<costFractionBits, l.Ageing)
	lifetime := (now - l.Ageing) >> costFractionBits
	hits := uint64(min(l.Hits, costHitLimit))
	depth := uint64(l.Depth)
	return now + lifetime*(hits*costHitWeight+costDepthWeight*depth/(depth+costDepthHalf))
}}
