package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
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

// orders are what records can be sorted by.
var orders = map[string]struct {
	title string
	less  func(a, b *blockLine) int
}{
	"bytes": {"largest", func(a, b *blockLine) int { return cmp.Compare(b.Bytes, a.Bytes) }},
	"hits":  {"most used", func(a, b *blockLine) int { return cmp.Compare(b.Hits, a.Hits) }},
	"age":   {"used longest ago", func(a, b *blockLine) int { return a.LastUsed.Compare(b.LastUsed) }},
}

func (f *inspectFlags) validate(cmd *cobra.Command) error {
	top, sort := cmd.Flags().Changed("top"), cmd.Flags().Changed("sort")
	if err := f.validateOnly(cmd.Flags().Changed("only")); err != nil {
		return err
	}
	if top && f.top < 1 {
		return fmt.Errorf("--top %d: expected a number of records, 1 or more", f.top)
	}
	if _, ok := orders[f.sort]; sort && !ok {
		return fmt.Errorf("--sort %q: expected bytes, hits or age", f.sort)
	}
	if sort && !top && !f.blocks {
		return fmt.Errorf("--sort %s: nothing to sort; expected --top N or --blocks with it", f.sort)
	}
	if f.depth < 1 {
		return fmt.Errorf("--depth %d: expected a number of blocks, 1 or more", f.depth)
	}
	return f.names.validate()
}

// chosen are the records to list, and the title of their table.
func (f *inspectFlags) chosen(inv *inventory) ([]blockLine, string) {
	out := slices.Clone(inv.Blocks)
	if f.sort == "" && f.top == 0 {
		return out, "records"
	}
	order := orders[cmp.Or(f.sort, "bytes")]
	slices.SortStableFunc(out, func(a, b blockLine) int { return cmp.Or(order.less(&a, &b), cmp.Compare(a.First, b.First)) })
	if f.top == 0 {
		return out, "records, " + order.title + " first"
	}
	out = out[:min(f.top, len(out))]
	return out, fmt.Sprintf("%d of %s, %s first", len(out), count(len(inv.Blocks), "record"), order.title)
}

// ago is a time in a table: how long before now it was, roughly.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return "-"
	case d < 2*time.Minute:
		return "just now"
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", d/time.Hour)
	}
	return fmt.Sprintf("%d d ago", d/(24*time.Hour))
}
