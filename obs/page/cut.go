package page

import (
	"cmp"
	"container/heap"
	"slices"
)

const (
	maxNodes  = 600  // runs that are drawn; each may have one More beside its children
	maxKids   = 48   // of one node
	maxDepth  = 24   // forks above one another
	thinnest  = 2000 // a run whose bytes are fewer than the whole divided by this is too thin to be seen
	maxModels = 24   // whose trees are drawn
)

// cut makes nodes of the largest runs, and of all others one for each parent.
func (f *forest) cut(t *Tree) {
	var open largest
	left := maxNodes
	order := make([]int, len(t.Models))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t.Models[b].Bytes, t.Models[a].Bytes) })
	grow := func(id string, from []int32, depth int) (kids []*Node) {
		slices.SortFunc(from, func(a, b int32) int {
			return cmp.Or(cmp.Compare(f.recs[b].bytes, f.recs[a].bytes), cmp.Compare(f.recs[a].key, f.recs[b].key))
		})
		n := 0
		for n < len(from) && n < min(maxKids, left) && depth < maxDepth && f.recs[from[n]].bytes >= t.Bytes/thinnest {
			n++
		}
		if n == len(from)-1 && depth < maxDepth { // one more is as good as "1 more"
			n++
		}
		for _, i := range from[:n] {
			x := f.node(i, depth)
			kids = append(kids, x)
			if len(x.from) > 0 {
				heap.Push(&open, x)
			}
		}
		left -= n
		if n < len(from) {
			kids = append(kids, f.more(id, from[n:], depth))
		}
		return kids
	}
	for i, m := range order {
		if roots := f.roots[m]; len(roots) > 0 && i < maxModels {
			t.Models[m].Kids = grow(t.Models[m].Fingerprint.String()[:12], roots, 0)
		}
	}
	for len(open) > 0 {
		n := heap.Pop(&open).(*Node)
		n.Kids = grow(n.ID, n.from, n.depth+1)
		n.from = nil
	}
}

// largest is a heap of nodes, that with the most bytes first.
type largest []*Node

func (h largest) Len() int { return len(h) }
func (h largest) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[j].Bytes, h[i].Bytes), cmp.Compare(h[i].ID, h[j].ID)) < 0
}
func (h largest) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *largest) Push(x any)   { *h = append(*h, x.(*Node)) }
func (h *largest) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
