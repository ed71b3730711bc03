package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/list"
)

// printInventory prints tables that fit into 80 columns, unless names are long.
func printInventory(w io.Writer, inv *inventory, f *inspectFlags) {
	fmt.Fprintf(w, "store %s, format %d\n%s\n", inv.UUID, inv.Version, inv.Dir)
	switch {
	case inv.Writing && inv.AsOf.IsZero():
		fmt.Fprintln(w, "a process has it open, and has made no checkpoint yet: what it has stored is not seen")
	case inv.Writing:
		fmt.Fprintf(w, "a process has it open: this is its last checkpoint, %s old\n", max(0, time.Since(inv.AsOf)).Round(100*time.Millisecond))
	}
	if f.model == "" {
		fmt.Fprintf(w, "%s on disk, %s alive\n", size(inv.DiskBytes), size(inv.LiveBytes))
	} else {
		fmt.Fprintf(w, "%s on disk; of model %s %s alive\n", size(inv.DiskBytes), f.model, size(inv.LiveBytes))
	}
	fmt.Fprintf(w, "%s, %s, %d damaged", count(inv.BlockCount, "block"), count(inv.Records, "record"), inv.Damaged)
	if n := len(inv.Tombstones); n > 0 {
		fmt.Fprintf(w, "; %d more to be destroyed", n)
	}
	if inv.Gone > 0 {
		fmt.Fprintf(w, "; %d gone since", inv.Gone)
	}
	fmt.Fprintln(w)
	printPlaces(w, "problem: ", inv.places, f.verbose)
	for _, n := range inv.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	now := time.Now()
	for _, name := range sectionNames {
		if f.shows(name) {
			sections[name](w, inv, now)
		}
	}
	if f.blocks || f.top > 0 {
		blocks, title := f.chosen(inv)
		printBlocks(w, inv, blocks, title, &f.names)
	}
	if f.tree {
		printTree(w, inv, f.depth, &f.names)
	}
}

// printBlocks lists every record. A column that would say the same of all of them is left out.
func printBlocks(w io.Writer, inv *inventory, blocks []blockLine, title string, names *scopeNames) {
	models, groups := len(inv.Models) > 1, slices.ContainsFunc(inv.Blocks, func(b blockLine) bool { return b.Group > 0 })
	header := []string{"block", "scope", "tokens", ">rows", ">size", ">segment", ">offset", ">hits", "created", "last used", ""}
	if groups {
		header = slices.Insert(header, 1, ">group")
	}
	if models {
		header = slices.Insert(header, 1, "model")
	}
	now := time.Now()
	t := newGrid(header...)
	for _, b := range blocks {
		var marks []string
		if b.Partial {
			marks = append(marks, "partial")
		}
		if b.Damaged {
			marks = append(marks, "damaged")
		}
		cells := []any{short(b.Key), names.show(b.Scope), fmt.Sprintf("[%d, %d)", b.First, b.First+b.Tokens), b.Rows, size(b.Bytes),
			b.Segment, b.Offset, b.Hits, ago(b.Created, now), ago(b.LastUsed, now), strings.Join(marks, " ")}
		if groups {
			cells = slices.Insert(cells, 1, any(b.Group))
		}
		if models {
			cells = slices.Insert(cells, 1, any(short(b.Model)))
		}
		t.row(cells...)
	}
	t.print(w, title)
}

// printTree draws the prefix tree. Runs of blocks without a fork are one line.
func printTree(w io.Writer, inv *inventory, depth int, names *scopeNames) {
	children := map[string][]blockLine{}
	stored := map[string]bool{}
	for _, b := range inv.Blocks {
		if b.Group == 0 {
			stored[b.Key] = true
			children[b.Parent] = append(children[b.Parent], b)
		}
	}
	now := time.Now()
	l := list.NewWriter()
	l.SetStyle(list.StyleConnectedLight)
	var draw func(b blockLine, level int)
	draw = func(b blockLine, level int) {
		first, run := b, 1
		for len(children[b.Key]) == 1 && children[b.Key][0].Scope == b.Scope {
			b = children[b.Key][0]
			run++
		}
		scope := "shared"
		if b.Scope != "" {
			scope = "scope " + names.show(b.Scope)
		}
		kids := children[b.Key]
		line := fmt.Sprintf("[%d, %d) %s, %s to %s, %s", first.First, b.First+b.Tokens, scope, count(run, "block"), short(b.Key), count(first.Hits, "hit"))
		if !first.LastUsed.IsZero() {
			line += ", last used " + ago(first.LastUsed, now)
		}
		if len(kids) > 0 {
			line += ", " + count(len(kids), "child")
		}
		l.AppendItem(line)
		if level >= depth {
			return
		}
		l.Indent()
		for _, k := range kids {
			draw(k, level+1)
		}
		l.UnIndent()
	}
	fmt.Fprintln(w, "\nprefix tree")
	var roots []string
	for parent := range children {
		if !stored[parent] {
			roots = append(roots, parent)
		}
	}
	slices.Sort(roots)
	for _, r := range roots {
		l.AppendItem(fmt.Sprintf("model %s, root %s", short(children[r][0].Model), short(r)))
		l.Indent()
		for _, b := range children[r] {
			draw(b, 1)
		}
		l.UnIndent()
	}
	fmt.Fprintln(w, l.Render())
}
