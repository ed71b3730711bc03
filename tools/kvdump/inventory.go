package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/kv"
)

// takeInventory takes it of the models that f names, or of all.
func takeInventory(ctx context.Context, s *db.Store, f *inspectFlags, report func(db.Progress)) (*inventory, error) {
	st, err := s.Stats()
	if err != nil {
		return nil, err
	}
	id, err := s.Identity()
	if err != nil {
		return nil, err
	}
	inv := &inventory{
		Dir: s.Dir(), AsOf: st.AsOf, Writing: st.BesideWriter, Version: id.Version, UUID: id.UUID, DiskBytes: st.DiskBytes, LiveBytes: st.LiveBytes,
		BlockCount: st.Blocks, Records: st.StoredRecords, Problems: []string{}, Notes: []string{}, Models: []modelLine{},
		Scopes: []scopeLine{}, Refs: []refLine{}, Sessions: []sessionLine{}, Codecs: []codecLine{}, Segments: []segmentLine{}, Log: []logLine{},
		Tombstones: []tombstoneLine{},
		Bloom:      &bloomLine{Loaded: st.BloomBytes > 0, Keys: st.BloomKeys, Bytes: st.BloomBytes, Fill: st.BloomFill, FPR: st.BloomFPR},
	}
	for _, err := range admin.IndexProblems(s) {
		if text := "index.db cannot be used and will be rebuilt: " + err.Error(); errors.Is(err, db.ErrCorrupt) {
			inv.problem(s.Dir(), text)
		} else {
			inv.Notes = append(inv.Notes, text)
		}
	}
	of, err := inv.models(s, f.model)
	if err != nil {
		return nil, err
	}
	stored, err := inv.records(ctx, s, of, report)
	if err != nil {
		return nil, err
	}
	refs, err := db.Collect(s.Refs())
	if err != nil {
		return nil, err
	}
	used := map[string]time.Time{}
	for _, b := range inv.Blocks {
		used[b.Key] = b.LastUsed
	}
	for _, r := range refs {
		if !of[r.Model] {
			continue
		}
		inv.Refs = append(inv.Refs, refLine{
			Name: r.Name, Model: r.Model.String(), Block: r.Block.String(), Tokens: r.Tokens, Pinned: r.Pinned,
			Priority: r.Priority, Set: r.Set, LastUsed: used[r.Block.String()], Expires: r.Expires, MetaBytes: len(r.Meta), Stored: stored[r.Block],
		})
	}
	slices.SortFunc(inv.Refs, func(a, b refLine) int { return natural(a.Name, b.Name) })
	if err := inv.sessions(ctx, s); err != nil {
		return nil, err
	}
	segs, err := db.Collect(admin.Segments(ctx, s))
	if err != nil {
		return nil, err
	}
	for _, x := range segs {
		if f.model != "" && !of[x.Model] {
			continue
		}
		inv.Segments = append(inv.Segments, segmentLine{x.ID, x.Model.String(), x.Sealed, x.Size, x.Allocated, x.Records, x.LiveBytes})
	}
	files, err := db.Collect(admin.Log(ctx, s))
	if err != nil {
		return nil, err
	}
	for _, x := range files {
		inv.Log = append(inv.Log, logLine(x))
	}
	waiting, err := db.Collect(admin.Tombstones(s))
	for _, x := range waiting {
		inv.Tombstones = append(inv.Tombstones, tombstoneLine(x))
	}
	return inv, err
}

// models lists the models that text names, or all, and returns which these are.
func (inv *inventory) models(s *db.Store, text string) (of map[kv.Fingerprint]bool, err error) {
	all, err := storedModels(s)
	if err != nil {
		return nil, err
	}
	picked := all
	if text != "" {
		if picked = modelsNamed(all, text); len(picked) == 0 {
			return nil, errMisuse{noModel(all, text)}
		}
		inv.BlockCount, inv.Records, inv.LiveBytes = 0, 0, 0
	}
	of = map[kv.Fingerprint]bool{}
	for _, m := range picked {
		of[m.Fingerprint] = true
		if text != "" {
			inv.BlockCount += m.Blocks
			inv.Records += m.Records
			inv.LiveBytes += m.Bytes
		}
		if m.Err != nil {
			inv.problem(s.Dir(), m.Err.Error())
		}
		inv.Models = append(inv.Models, newModelLine(m))
	}
	return of, nil
}

func newModelLine(m db.ModelStats) modelLine {
	d := m.Descriptor
	line := modelLine{
		Name: d.Name, Fingerprint: m.Fingerprint.String(), Latest: m.Latest, Architecture: d.Architecture,
		Tensors: len(d.Tensors), BlockTokens: d.BlockTokens, TokenBytes: d.TokenBytes(),
		Blocks: m.Blocks, Records: m.Records, Bytes: m.Bytes,
	}
	for _, g := range d.Groups {
		line.Groups = append(line.Groups, g.String())
	}
	return line
}

// sessions reads every session.
func (inv *inventory) sessions(ctx context.Context, s *db.Store) error {
	all, err := db.Collect(s.Sessions(ctx))
	if err != nil {
		return err
	}
	for _, x := range all {
		frames, err := db.Collect(s.ReadSession(ctx, x.Scope))
		line := sessionLine{Scope: x.Scope.String(), Frames: len(frames), Bytes: x.Bytes, Modified: x.Modified}
		switch {
		case errors.Is(err, db.ErrNotFound): // deleted since
			continue
		case errors.Is(err, db.ErrCorrupt):
			line.Damaged = true
			inv.problem(s.Dir(), err.Error())
		case err != nil:
			return err
		}
		inv.Sessions = append(inv.Sessions, line)
	}
	return nil
}

// records walks every record once: blocks, scopes, codecs.
func (inv *inventory) records(ctx context.Context, s *db.Store, of map[kv.Fingerprint]bool, report func(db.Progress)) (stored map[kv.Key]bool, err error) {
	stored = map[kv.Key]bool{}
	scopes := map[kv.ScopeID]*scopeLine{}
	codecs := map[[2]string]*codecLine{}
	unread := unreadable{}
	var done int64
	for b, err := range s.Blocks(ctx) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if !of[b.Model] {
			continue
		}
		if done += b.Bytes; report != nil {
			report(db.Progress{What: "inspect", Done: done, Total: inv.LiveBytes})
		}
		planes, err := db.Collect(admin.Planes(ctx, s, b))
		if errors.Is(err, db.ErrGone) {
			inv.Gone++
			err = nil
		} else if err != nil {
			unread.add(b, err)
		}
		stored[b.Key] = true
		line := blockLine{
			Key: b.Key.String(), Parent: b.Parent.String(), Group: b.Group, Model: b.Model.String(), First: b.First,
			Tokens: b.Tokens, Rows: b.Rows, Bytes: b.Bytes, Segment: b.Segment, Offset: b.Offset, Ended: b.Hits,
			Created: b.Created, LastUsed: b.Used, Damaged: b.Damaged || err != nil, Partial: b.Partial,
		}
		if !b.Scope.IsShared() {
			line.Scope = b.Scope.String()
		}
		inv.Blocks = append(inv.Blocks, line)
		sc := scopes[b.Scope]
		if sc == nil {
			sc = &scopeLine{ID: line.Scope, Scope: cmp.Or(line.Scope, "shared")}
			scopes[b.Scope] = sc
		}
		sc.Records++
		sc.Bytes += b.Bytes
		if b.Group == 0 {
			sc.Blocks++
		}
		if line.Damaged {
			inv.Damaged++
		}
		for _, p := range planes {
			k := [2]string{p.Codec, p.Compression}
			if codecs[k] == nil {
				codecs[k] = &codecLine{Codec: p.Codec, Compression: p.Compression}
			}
			c := codecs[k]
			c.Planes++
			c.Bytes += p.Bytes
			c.Exceptions += p.Exceptions
			c.MaxError = max(c.MaxError, p.MaxError)
		}
	}
	unread.report(inv)
	for _, sc := range scopes {
		inv.Scopes = append(inv.Scopes, *sc)
	}
	slices.SortFunc(inv.Scopes, func(a, b scopeLine) int { return cmp.Compare(a.Scope, b.Scope) })
	inv.addUsage()
	for _, c := range codecs {
		inv.Codecs = append(inv.Codecs, *c)
	}
	slices.SortFunc(inv.Codecs, func(a, b codecLine) int {
		return cmp.Or(cmp.Compare(a.Codec, b.Codec), cmp.Compare(a.Compression, b.Compression))
	})
	return stored, nil
}
