package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

type inspectFlags struct {
	blocks, tree bool
	verbose      bool
	depth, top   int
	sort         string
	model        string
	only         []string
	names        scopeNames
}

// sectionNames are what inspect shows below its head, in order. --only picks some.
var sectionNames = []string{"models", "scopes", "refs", "sessions", "codecs", "segments", "log", "bloom"}

// shows reports whether a section is to be shown.
func (f *inspectFlags) shows(name string) bool {
	return len(f.only) == 0 || slices.Contains(f.only, name)
}

func (f *inspectFlags) validateOnly(given bool) error {
	names, only := sectionNames, f.only
	if given && len(only) == 0 {
		only = []string{""}
	}
	for _, name := range only {
		if !slices.Contains(names, name) {
			last := len(names) - 1
			return fmt.Errorf("--only %q: expected %s or %s", name, strings.Join(names[:last], ", "), names[last])
		}
	}
	return nil
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
