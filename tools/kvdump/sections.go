package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
)

// sections print what --only names.
var sections = map[string]func(w io.Writer, inv *inventory, now time.Time){
	"models": printModels, "scopes": printScopes, "refs": printRefs, "sessions": printSessions, "codecs": printCodecs,
	"segments": printSegments, "log": printLog, "bloom": printBloom,
}

// leaveOut takes the sections out of a JSON document that are not to be shown.
func (f *inspectFlags) leaveOut(inv *inventory) {
	for name, drop := range map[string]func(){
		"models":   func() { inv.Models = nil },
		"scopes":   func() { inv.Scopes = nil },
		"refs":     func() { inv.Refs = nil },
		"sessions": func() { inv.Sessions = nil },
		"codecs":   func() { inv.Codecs = nil },
		"segments": func() { inv.Segments, inv.Tombstones = nil, nil },
		"log":      func() { inv.Log = nil },
		"bloom":    func() { inv.Bloom = nil },
	} {
		if !f.shows(name) {
			drop()
		}
	}
}

// printModels prints what a model has in the store, and, in a table of its own, what its rows are.
func printModels(w io.Writer, inv *inventory, _ time.Time) {
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

func printScopes(w io.Writer, inv *inventory, now time.Time) {
	t := newGrid("scope", ">blocks", ">records", ">size", ">hits", "last used")
	for _, s := range inv.Scopes {
		t.row(cmp.Or(s.Name, s.Scope), s.Blocks, s.Records, size(s.Bytes), s.Hits, ago(s.LastUsed, now))
	}
	t.print(w, "scopes")
}

func printRefs(w io.Writer, inv *inventory, now time.Time) {
	if len(inv.Refs) == 0 {
		return
	}
	t := newGrid("name", "model", ">tokens", "pinned", ">priority", "set", "last used", "expires", ">metadata", "")
	for _, r := range inv.Refs {
		mark := ""
		if !r.Stored {
			mark = "not stored"
		}
		t.row(r.Name, short(r.Model), r.Tokens, yes(r.Pinned), r.Priority, ago(r.Set, now), ago(r.LastUsed, now), when(r.Expires), size(int64(r.MetaBytes)), mark)
	}
	t.print(w, "refs")
}

func printSessions(w io.Writer, inv *inventory, now time.Time) {
	if len(inv.Sessions) == 0 {
		return
	}
	t := newGrid("scope", ">frames", ">size", "modified", "")
	for _, x := range inv.Sessions {
		mark := ""
		if x.Damaged {
			mark = "damaged"
		}
		t.row(cmp.Or(x.Name, x.Scope), x.Frames, size(x.Bytes), ago(x.Modified, now), mark)
	}
	t.print(w, "sessions")
}

func printCodecs(w io.Writer, inv *inventory, _ time.Time) {
	t := newGrid("codec", "compression", ">planes", ">size", ">exceptions", ">largest error")
	for _, c := range inv.Codecs {
		t.row(c.Codec, c.Compression, c.Planes, size(c.Bytes), c.Exceptions, fmt.Sprintf("%.3g", c.MaxError))
	}
	t.print(w, "codecs")
}

func printSegments(w io.Writer, inv *inventory, _ time.Time) {
	t := newGrid(">id", "model", "sealed", ">size", ">on disk", ">live records", ">live bytes", ">alive")
	for _, s := range inv.Segments {
		t.row(s.ID, short(s.Model), yes(s.Sealed), size(s.Size), size(s.Allocated), s.Records, size(s.LiveBytes), percent(s.LiveBytes, s.Size))
	}
	t.print(w, "segments")
}

func printLog(w io.Writer, inv *inventory, _ time.Time) {
	t := newGrid(">file", "frames", ">on disk", "end")
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
}

func printBloom(w io.Writer, inv *inventory, _ time.Time) {
	fmt.Fprintln(w)
	b := inv.Bloom
	if !b.Loaded {
		fmt.Fprintln(w, "Bloom filter: none that can be used; the next program that opens the store builds one")
		return
	}
	rate := "under 1e-6"
	if b.FPR >= 1e-6 {
		rate = fmt.Sprintf("%.2g", b.FPR)
	}
	fmt.Fprintf(w, "Bloom filter: %s in %s, %.1f %% full, false positives %s\n", count(b.Keys, "key"), size(b.Bytes), 100*b.Fill, rate)
}
