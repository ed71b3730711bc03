package chat

import "math"

// Policy chooses the turns that the next turn attends to. It gets the turns in the cache, the oldest first, and returns one answer for each. query is
// the embedding of the message ([BeginOptions].Embedding). The host is locked while it runs, as for a [Sampler].
type Policy func(turns []TurnInfo, query []float32) []bool

// All lets a turn attend to all turns in the cache.
func All(turns []TurnInfo, _ []float32) []bool {
	return choose(turns, func(int) bool { return true })
}

// Recent lets a turn attend to the last n turns.
func Recent(n int) Policy {
	return func(turns []TurnInfo, _ []float32) []bool {
		return choose(turns, func(i int) bool { return i >= len(turns)-n })
	}
}

// Window lets a turn attend to as many of the last turns as have at most so many tokens together.
func Window(tokens int) Policy {
	return func(turns []TurnInfo, _ []float32) []bool {
		first, sum := len(turns), 0
		for first > 0 && sum+turns[first-1].Tokens <= tokens {
			first--
			sum += turns[first].Tokens
		}
		return choose(turns, func(i int) bool { return i >= first })
	}
}

// Topic lets a turn attend to the last turn, and to those whose embedding has a cosine similarity of at least the threshold with the message's. It
// also attends to turns without an embedding, and to all turns if the message has none. Package chat/topic makes embeddings, and has a threshold for
// them.
func Topic(threshold float64) Policy {
	return func(turns []TurnInfo, query []float32) []bool {
		return choose(turns, func(i int) bool {
			return i == len(turns)-1 || len(query) == 0 || len(turns[i].Embedding) == 0 || turns[i].Relevance >= threshold
		})
	}
}

func choose(turns []TurnInfo, yes func(i int) bool) []bool {
	in := make([]bool, len(turns))
	for i := range in {
		in[i] = yes(i)
	}
	return in
}

// Cosine returns the cosine similarity of two embeddings. It is 0 if their lengths differ or one of them is zero.
func Cosine(a, b []float32) float64 {
	if len(a) != len(b) {
		return 0
	}
	var ab, aa, bb float64
	for i := range a {
		ab += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}
