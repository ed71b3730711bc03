package main

import (
	"cmp"
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
	fmt.Fprintf(w, "%s on disk, %s alive\n", size(inv.DiskBytes), size(inv.LiveBytes))
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
	printModels(w, inv)

	now := time.Now()
	t := newGrid("scope", ">blocks", ">records", ">size", ">hits", "last used")
	for _, s := range inv.Scopes {
		t.row(cmp.Or(s.Name, s.Scope), s.Blocks, s.Records, size(s.Bytes), s.Hits, ago(s.LastUsed, now))
	}
	t.print(w, "scopes")

	if len(inv.Refs) > 0 {
		t = newGrid("name", "model", ">tokens", "pinned", ">priority", "set", "last used", "expires", ">metadata", "")
		for _, r := range inv.Refs {
			mark := ""
			if !r.Stored {
				mark = "not stored"
			}
			t.row(r.Name, short(r.Model), r.Tokens, yes(r.Pinned), r.Priority, ago(r.Set, now), ago(r.LastUsed, now), when(r.Expires), size(int64(r.MetaBytes)), mark)
		}
		t.print(w, "refs")
	}

	if len(inv.Sessions) > 0 {
		t = newGrid("scope", ">frames", ">size", "modified", "")
		for _, x := range inv.Sessions {
			mark := ""
			if x.Damaged {
				mark = "damaged"
			}
			t.row(cmp.Or(x.Name, x.Scope), x.Frames, size(x.Bytes), ago(x.Modified, now), mark)
		}
		t.print(w, "sessions")
	}

	t = newGrid("codec", "compression", ">planes", ">size", ">exceptions", ">largest error")
	for _, c := range inv.Codecs {
		t.row(c.Codec, c.Compression, c.Planes, size(c.Bytes), c.Exceptions, fmt.Sprintf("%.3g", c.MaxError))
	}
	t.print(w, "codecs")

	t = newGrid(">id", "model", "sealed", ">size", ">on disk", ">live records", ">live bytes", ">alive")
	for _, s := range inv.Segments {
		t.row(s.ID, short(s.Model), yes(s.Sealed), size(s.Size), size(s.Allocated), s.Records, size(s.LiveBytes), percent(s.LiveBytes, s.Size))
	}
	t.print(w, "segments")

	t = newGrid(">file", "frames", ">on disk", "end")
	for _, l := range inv.Log {
		frames, end := fmt.Sprintf("%d to %d", l.FirstLSN, l.LastLSN), "clean"
		if l.LastLSN < l.FirstLSN {
			frames = fmt.Sprintf("none; the next is %d", l.FirstLSN)
		}
		if l.Torn {
			end = "torn"
		}
		t.row(l.ID, frames, size(l.Bytes), end)
	}
	t.print(w, "log")

	fmt.Fprintln(w)
	if b := inv.Bloom; b.Loaded {
		rate := "under 1e-6"
		if b.FPR >= 1e-6 {
			rate = fmt.Sprintf("%.2g", b.FPR)
		}
		fmt.Fprintf(w, "Bloom filter: %s in %s, %.1f %% full, false positives %s\n",
			count(b.Keys, "key"), size(b.Bytes), 100*b.Fill, rate)
	} else {
		fmt.Fprintln(w, "Bloom filter: none that can be used; the next program that opens the store builds one")
	}
	if f.blocks || f.top > 0 {
		blocks, title := f.chosen(inv)
		printBlocks(w, inv, blocks, title, &f.names)
	}
	if f.tree {
		printTree(w, inv, f.depth, &f.names)
	}
}

// printModels prints what a model has in the store, and, in a table of its own, what its rows are.
func printModels(w io.Writer, inv *inventory) {
	stored := newGrid("name", "fingerprint", "version", ">blocks", ">records", ">size")
	layout := newGrid("fingerprint", "architecture", ">tensors", "groups", ">tokens/block", ">bytes/token")
	for _, m := range inv.Models {
		version := "latest"
		if !m.Latest {
			version = "superseded"
		}
		stored.row(m.Name, short(m.Fingerprint), version, m.Blocks, m.Records, size(m.Bytes))
		layout.row(short(m.Fingerprint), m.Architecture, m.Tensors, strings.Join(m.Groups, " "), m.BlockTokens, m.TokenBytes)
	}
	stored.print(w, "models")
	layout.print(w, "layouts")
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

func when(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Format("2006-01-02 15:04")
}
