package trace

// Policies that were measured and not chosen. They are here so that the table in docs/eviction.md can be made again.

// lifetimes is the frame of CostAware with another bonus, in 1/256 of a lifetime.
func lifetimes(name string, bonus func(Leaf) uint64) Policy {
	return Policy{name, func(l Leaf) uint64 {
		if l.Event == Bared {
			return max(l.Rank, l.Ageing)
		}
		now := max(l.Clock<<costFractionBits, l.Ageing)
		return now + (now-l.Ageing)>>costFractionBits*bonus(l)
	}}
}

var (
	hitsOnly  = lifetimes("hits only", func(l Leaf) uint64 { return 128 * uint64(min(l.Hits, 4)) })
	depthOnly = lifetimes("depth only", func(l Leaf) uint64 { return 192 * uint64(l.Depth) / uint64(l.Depth+8192) })

	// fullCost weighs the whole cost of a block: 1 + depth/8192, without a limit.
	fullCost = lifetimes("depth without limit", func(l Leaf) uint64 {
		return 128*uint64(min(l.Hits, 4)) + uint64(l.Depth)/32
	})

	// strongHits gives more to hits, also when the blocks below have gone.
	strongHits = Policy{"hits, also when bared", func(l Leaf) uint64 {
		now := max(l.Clock<<costFractionBits, l.Ageing)
		lifetime := (now - l.Ageing) >> costFractionBits
		hits := uint64(min(l.Hits, 4))
		if l.Event == Bared {
			return max(l.Rank, l.Ageing+lifetime*hits*64)
		}
		return now + lifetime*(hits*192+192*uint64(l.Depth)/uint64(l.Depth+8192))
	}}

	// meanGap gives a block that was hit twice the mean time between its hits, at most one lifetime.
	meanGap = Policy{"mean gap", func(l Leaf) uint64 {
		if l.Event == Bared {
			return max(l.Rank, l.Ageing)
		}
		now := max(l.Clock<<costFractionBits, l.Ageing)
		lifetime := (now - l.Ageing) >> costFractionBits
		bonus := lifetime * (64*uint64(min(l.Hits, 4)) + 192*uint64(l.Depth)/uint64(l.Depth+8192))
		if l.Event == Touched {
			gap := (l.Clock - l.Birth) / uint64(max(l.Hits, 1))
			bonus += min(gap<<(costFractionBits+1), lifetime<<costFractionBits)
		}
		return now + bonus
	}}

	// greedyDual is GDSF with the block's whole cost, in 1/256.
	greedyDual = Policy{"GDSF with cost", func(l Leaf) uint64 {
		if l.Event == Bared {
			return l.Rank
		}
		return (l.Ageing>>countShift+uint64(l.Hits+1)*(256+uint64(l.Depth)/32))<<countShift | l.Touched
	}}

	// luckyEighth gives one conversation in eight three more lifetimes, whatever it is, against thrashing.
	luckyEighth = lifetimes("a lucky eighth", func(l Leaf) uint64 {
		bonus := 128*uint64(min(l.Hits, 4)) + 192*uint64(l.Depth)/uint64(l.Depth+8192)
		if l.Event == Inserted && mix(l.Clock/64)%8 == 0 {
			bonus += 3 * 256
		}
		return bonus
	})
)
