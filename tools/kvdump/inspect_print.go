package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/list"
)

func printInventory(w io.Writer, inv *inventory, f *inspectFlags) {
	fmt.Fprintf(w, "store %s, format %d\n%s\n", inv.UUID, inv.Version, inv.Dir)
	fmt.Fprintf(w, "%s on disk, %s alive; %d blocks, %d records, %d damaged; %d records wait to be destroyed\n",
		size(inv.DiskBytes), size(inv.LiveBytes), inv.BlockCount, inv.Records, inv.Damaged, len(inv.Tombstones))
	for _, p := range inv.Problems {
		fmt.Fprintln(w, "problem:", p)
	}

	t := newTable(w, "models", "name", "fingerprint", "version", "architecture", "tensors", "groups", "block", "B/token", "blocks", "records", "size")
	for _, m := range inv.Models {
		version := "latest"
		if !m.Latest {
			version = "superseded"
		}
		t.AppendRow([]any{m.Name, short(m.Fingerprint), version, m.Architecture, m.Tensors, strings.Join(m.Groups, " "), m.BlockTokens,
			m.TokenBytes, m.Blocks, m.Records, size(m.Bytes)})
	}
	t.Render()

	t = newTable(w, "scopes", "scope", "blocks", "records", "size")
	for _, s := range inv.Scopes {
		t.AppendRow([]any{s.Scope, s.Blocks, s.Records, size(s.Bytes)})
	}
	t.Render()

	if len(inv.Refs) > 0 {
		t = newTable(w, "refs", "name", "model", "tokens", "pinned", "priority", "expires", "metadata", "stored")
		for _, r := range inv.Refs {
			t.AppendRow([]any{r.Name, short(r.Model), r.Tokens, yes(r.Pinned), r.Priority, when(r.Expires), size(int64(r.MetaBytes)), yes(r.Stored)})
		}
		t.Render()
	}

	t = newTable(w, "codecs", "codec", "compression", "planes", "size", "exceptions", "largest error")
	for _, c := range inv.Codecs {
		t.AppendRow([]any{c.Codec, c.Compression, c.Planes, size(c.Bytes), c.Exceptions, fmt.Sprintf("%.3g", c.MaxError)})
	}
	t.Render()

	t = newTable(w, "segments", "id", "model", "sealed", "size", "on disk", "live records", "live", "share")
	for _, s := range inv.Segments {
		t.AppendRow([]any{s.ID, short(s.Model), yes(s.Sealed), size(s.Size), size(s.Allocated), s.Records, size(s.LiveBytes), percent(s.LiveBytes, s.Size)})
	}
	t.Render()

	t = newTable(w, "log", "file", "frames", "on disk", "end")
	for _, l := range inv.Log {
		end := "clean"
		if l.Torn {
			end = "torn"
		}
		t.AppendRow([]any{l.ID, fmt.Sprintf("%d to %d", l.FirstLSN, l.LastLSN), size(l.Bytes), end})
	}
	t.Render()

	fmt.Fprintln(w)
	if inv.Bloom.Loaded {
		fmt.Fprintf(w, "Bloom filter: %d keys in %s, %.1f %% of the bits set, estimated false-positive rate %.2g\n",
			inv.Bloom.Keys, size(inv.Bloom.Bytes), 100*inv.Bloom.Fill, inv.Bloom.FPR)
	} else {
		fmt.Fprintln(w, "Bloom filter: none that can be used; the next program that opens the store builds one")
	}
	if f.blocks {
		printBlocks(w, inv)
	}
	if f.tree {
		printTree(w, inv, f.depth)
	}
}

func printBlocks(w io.Writer, inv *inventory) {
	t := newTable(w, "records", "block", "group", "model", "scope", "tokens", "rows", "size", "segment", "offset", "hits", "")
	for _, b := range inv.Blocks {
		var marks []string
		if b.Tail {
			marks = append(marks, "tail")
		}
		if b.Damaged {
			marks = append(marks, "damaged")
		}
		scope := short(b.Scope)
		if scope == "" {
			scope = "shared"
		}
		t.AppendRow([]any{short(b.Key), b.Group, short(b.Model), scope, fmt.Sprintf("[%d, %d)", b.First, b.First+b.Tokens), b.Rows,
			size(b.Bytes), b.Segment, b.Offset, b.Hits, strings.Join(marks, " ")})
	}
	t.Render()
}

// printTree draws the prefix tree. Runs of blocks without a fork are one line.
func printTree(w io.Writer, inv *inventory, depth int) {
	children := map[string][]blockLine{}
	stored := map[string]bool{}
	for _, b := range inv.Blocks {
		if b.Group == 0 {
			stored[b.Key] = true
			children[b.Parent] = append(children[b.Parent], b)
		}
	}
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
			scope = "scope " + short(b.Scope)
		}
		kids := children[b.Key]
		l.AppendItem(fmt.Sprintf("[%d, %d) %s, %d blocks to %s, %s, %d hits", first.First, b.First+b.Tokens, scope, run, short(b.Key),
			fmt.Sprintf("%d children", len(kids)), b.Hits))
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
