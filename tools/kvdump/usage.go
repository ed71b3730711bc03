package main

import (
	"cmp"
	"slices"
)

// addUsage counts a block as used by every match that ended in it or below it: the store notes a match only where it ended. What is
// said of a block holds for its records of all groups.
func (inv *inventory) addUsage() {
	blocks := map[string]*blockLine{}
	var order []*blockLine
	for i := range inv.Blocks {
		if b := &inv.Blocks[i]; b.Group == 0 {
			b.Hits = int64(b.Ended)
			blocks[b.Key] = b
			order = append(order, b)
		}
	}
	slices.SortFunc(order, func(a, b *blockLine) int { return cmp.Compare(b.First, a.First) }) // children first
	for _, b := range order {
		if parent := blocks[b.Parent]; parent != nil && parent.First < b.First {
			parent.Hits += b.Hits
			if b.LastUsed.After(parent.LastUsed) {
				parent.LastUsed = b.LastUsed
			}
		}
	}
	for i := range inv.Blocks {
		if b := &inv.Blocks[i]; b.Group != 0 {
			if of := blocks[b.Key]; of != nil {
				b.Ended, b.Hits, b.LastUsed = of.Ended, of.Hits, of.LastUsed
			}
		}
	}
	scopes := map[string]*scopeLine{}
	for i := range inv.Scopes {
		scopes[inv.Scopes[i].ID] = &inv.Scopes[i]
	}
	for _, b := range order {
		s, parent := scopes[b.Scope], blocks[b.Parent]
		if parent == nil || parent.Scope != b.Scope {
			s.Hits += b.Hits // what went through the scope's first block
		}
		if b.LastUsed.After(s.LastUsed) {
			s.LastUsed = b.LastUsed
		}
	}
}
