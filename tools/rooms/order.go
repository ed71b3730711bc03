package main

import (
	"math/bits"
	"math/rand/v2"
	"slices"
)

// graph has, for each file, the files that it has arrows to.
type graph [][]int

// largestExact is how many files a circle may have for the best order to be computed: it takes two to that power steps.
const largestExact = 20

// order puts the files in the order in which the fewest arrows run back up. It says if a circle was too large to try everything.
func (g graph) order() (order []int, searched bool) {
	for _, circle := range g.circles() {
		if len(circle) <= largestExact {
			order = append(order, g.best(circle)...)
		} else {
			order, searched = append(order, g.search(circle)...), true
		}
	}
	return order, searched
}

// circles are the groups of files from each of which arrows lead to all others of the group, and back. A file on no circle is a group of its own. No
// arrow runs from a later group to an earlier one. (Tarjan's algorithm.)
func (g graph) circles() [][]int {
	number, low := make([]int, len(g)), make([]int, len(g))
	var stack []int
	var found [][]int
	next := 0
	var visit func(v int)
	visit = func(v int) {
		next++
		number[v], low[v] = next, next
		stack = append(stack, v)
		for _, w := range g[v] {
			if number[w] == 0 {
				visit(w)
				low[v] = min(low[v], low[w])
			} else if slices.Contains(stack, w) {
				low[v] = min(low[v], number[w])
			}
		}
		if low[v] == number[v] {
			i := slices.Index(stack, v)
			circle := slices.Sorted(slices.Values(stack[i:]))
			found, stack = append(found, circle), stack[:i]
		}
	}
	for v := len(g) - 1; v >= 0; v-- {
		if number[v] == 0 {
			visit(v)
		}
	}
	slices.Reverse(found)
	return found
}

// best tries all orders of a circle: for each set of files that may stand on top, the cheapest way to get there.
func (g graph) best(circle []int) []int {
	n := len(circle)
	to := make([]uint32, n) // the files that a file has arrows to, as bits
	for i, v := range circle {
		for _, w := range g[v] {
			if j := slices.Index(circle, w); j >= 0 {
				to[i] |= 1 << j
			}
		}
	}
	cost, last := make([]int32, 1<<n), make([]int8, 1<<n)
	for top := 1; top < 1<<n; top++ {
		cost[top] = 1 << 30
		for i := range n {
			if top>>i&1 == 0 {
				continue
			}
			above := top &^ (1 << i)
			if c := cost[above] + int32(bits.OnesCount32(to[i]&uint32(above))); c < cost[top] {
				cost[top], last[top] = c, int8(i)
			}
		}
	}
	order := make([]int, n)
	for top := 1<<n - 1; n > 0; n-- {
		i := last[top]
		order[n-1] = circle[i]
		top &^= 1 << i
	}
	return order
}

// search moves one file at a time to where it costs least, until no move helps. Then it swaps some files at random and does that again, and keeps
// the new order unless it is worse.
func (g graph) search(circle []int) []int {
	random := rand.New(rand.NewPCG(1, 2))
	arrow := g.matrix()
	best := slices.Clone(circle)
	improve(best, arrow)
	least := backUp(best, arrow)
	for range 3000 {
		try := slices.Clone(best)
		for range 2 + random.IntN(len(try)/2) {
			i, j := random.IntN(len(try)), random.IntN(len(try))
			try[i], try[j] = try[j], try[i]
		}
		improve(try, arrow)
		if n := backUp(try, arrow); n <= least {
			best, least = try, n
		}
	}
	return best
}

// matrix has 1 where an arrow runs from one file to another.
func (g graph) matrix() [][]int {
	m := make([][]int, len(g))
	for v, out := range g {
		m[v] = make([]int, len(g))
		for _, w := range out {
			m[v][w] = 1
		}
	}
	return m
}

// backUp counts the arrows that run back up.
func backUp(order []int, arrow [][]int) (n int) {
	for i, v := range order {
		for _, w := range order[:i] {
			n += arrow[v][w]
		}
	}
	return n
}

func improve(order []int, arrow [][]int) {
	for moved := true; moved; {
		moved = false
		for i, v := range order {
			at, least := i, 0
			for _, step := range []int{-1, 1} {
				change := 0
				for j := i + step; j >= 0 && j < len(order); j += step {
					w := order[j]
					change += step * (arrow[v][w] - arrow[w][v])
					if change < least {
						at, least = j, change
					}
				}
			}
			if at != i {
				order = slices.Insert(slices.Delete(order, i, i+1), at, v)
				moved = true
				break
			}
		}
	}
}
