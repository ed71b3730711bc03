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

// inventory is everything that inspect shows. Its fields are the JSON document.
type inventory struct {
	Dir        string          `json:"dir"`
	AsOf       time.Time       `json:"as_of"`         // when that was so
	Writing    bool            `json:"beside_writer"` // a process has the store open, and as_of is its last checkpoint; zero: it has made none
	Version    uint32          `json:"format_version"`
	UUID       string          `json:"uuid"`
	DiskBytes  int64           `json:"disk_bytes"`
	LiveBytes  int64           `json:"live_bytes"`
	Blocks     []blockLine     `json:"blocks,omitempty"`
	BlockCount int64           `json:"block_count"`
	Records    int64           `json:"record_count"`
	Damaged    int             `json:"damaged_records"`
	Gone       int             `json:"gone_records"` // destroyed since by the process that writes
	Problems   []string        `json:"problems"`     // damage
	places     []place         // Problems, with their files
	Notes      []string        `json:"notes"` // what is odd and costs nothing
	Models     []modelLine     `json:"models"`
	Scopes     []scopeLine     `json:"scopes"`
	Refs       []refLine       `json:"refs"`
	Sessions   []sessionLine   `json:"sessions"`
	Codecs     []codecLine     `json:"codecs"`
	Segments   []segmentLine   `json:"segments"`
	Log        []logLine       `json:"log"`
	Tombstones []tombstoneLine `json:"tombstones"`
	Bloom      bloomLine       `json:"bloom"`
}

type modelLine struct {
	Name         string   `json:"name"`
	Fingerprint  string   `json:"fingerprint"`
	Latest       bool     `json:"latest"`
	Architecture string   `json:"architecture"`
	Tensors      int      `json:"tensors"`
	Groups       []string `json:"groups"`
	BlockTokens  int      `json:"block_tokens"`
	TokenBytes   int      `json:"token_bytes"`
	Blocks       int64    `json:"blocks"`
	Records      int64    `json:"records"`
	Bytes        int64    `json:"bytes"`
}

type blockLine struct {
	Key     string `json:"key"`
	Parent  string `json:"parent"`
	Group   int    `json:"group"`
	Model   string `json:"model"`
	Scope   string `json:"scope,omitempty"`
	First   int    `json:"first"`
	Tokens  int    `json:"tokens"`
	Rows    int    `json:"rows"`
	Bytes   int64  `json:"bytes"`
	Segment uint64 `json:"segment"`
	Offset  int64  `json:"offset"`
	// Hits are the matches that used the block: that ended in it, or below it in what is stored now. Ended are the former.
	Hits     int64     `json:"hits"`
	Ended    uint32    `json:"hits_ended"`
	Created  time.Time `json:"created,omitzero"`   // to the second
	LastUsed time.Time `json:"last_used,omitzero"` // to the minute; zero if that is not known
	Damaged  bool      `json:"damaged"`
	Partial  bool      `json:"partial"`
}

type scopeLine struct {
	ID       string    `json:"-"` // empty: what scopes share
	Scope    string    `json:"scope"`
	Name     string    `json:"name,omitempty"` // if the user gave it
	Blocks   int       `json:"blocks"`
	Records  int       `json:"records"`
	Bytes    int64     `json:"bytes"`
	Hits     int64     `json:"hits"` // matches that used a block of it
	LastUsed time.Time `json:"last_used,omitzero"`
}

type refLine struct {
	Name      string    `json:"name"`
	Model     string    `json:"model"`
	Block     string    `json:"block"`
	Tokens    int       `json:"tokens"`
	Pinned    bool      `json:"pinned"`
	Priority  uint8     `json:"priority"`
	Set       time.Time `json:"set,omitzero"`
	LastUsed  time.Time `json:"last_used,omitzero"` // of its block and what is stored behind it; zero if that is not known
	Expires   time.Time `json:"expires,omitzero"`
	MetaBytes int       `json:"meta_bytes"`
	Stored    bool      `json:"stored"`
}

type sessionLine struct {
	Scope    string    `json:"scope"`
	Name     string    `json:"name,omitempty"` // if the user gave it
	Frames   int       `json:"frames"`         // before damage, if there is some
	Bytes    int64     `json:"bytes"`
	Modified time.Time `json:"modified,omitzero"`
	Damaged  bool      `json:"damaged"`
}

type codecLine struct {
	Codec       string  `json:"codec"`
	Compression string  `json:"compression"`
	Planes      int     `json:"planes"`
	Bytes       int64   `json:"bytes"`
	Exceptions  int     `json:"exceptions"`
	MaxError    float32 `json:"max_error"`
}

type segmentLine struct {
	ID        uint64 `json:"id"`
	Model     string `json:"model"`
	Sealed    bool   `json:"sealed"`
	Size      int64  `json:"size"`
	Allocated int64  `json:"allocated"`
	Records   int64  `json:"live_records"`
	LiveBytes int64  `json:"live_bytes"`
}

type logLine struct {
	ID       uint64 `json:"id"`
	FirstLSN uint64 `json:"first_lsn"`
	LastLSN  uint64 `json:"last_lsn"` // below the first if the file has no frame
	Bytes    int64  `json:"bytes"`
	Torn     bool   `json:"torn"`
}

type tombstoneLine struct {
	Segment uint64 `json:"segment"`
	Offset  int64  `json:"offset"`
	Bytes   int64  `json:"bytes"`
}

type bloomLine struct {
	Loaded bool    `json:"loaded"`
	Keys   int64   `json:"keys"`
	Bytes  int64   `json:"bytes"`
	Fill   float64 `json:"fill"`
	FPR    float64 `json:"estimated_false_positive_rate"`
}

func takeInventory(ctx context.Context, s *db.Store, report func(db.Progress)) (*inventory, error) {
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
		Bloom:      bloomLine{Loaded: st.BloomBytes > 0, Keys: st.BloomKeys, Bytes: st.BloomBytes, Fill: st.BloomFill, FPR: st.BloomFPR},
	}
	for _, err := range admin.IndexProblems(s) {
		if text := "index.db cannot be used and will be rebuilt: " + err.Error(); errors.Is(err, db.ErrCorrupt) {
			inv.problem(s.Dir(), text)
		} else {
			inv.Notes = append(inv.Notes, text)
		}
	}
	if err := inv.models(s); err != nil {
		return nil, err
	}
	stored, err := inv.records(ctx, s, report)
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
		inv.Refs = append(inv.Refs, refLine{
			Name: r.Name, Model: r.Model.String(), Block: r.Block.String(), Tokens: r.Tokens, Pinned: r.Pinned,
			Priority: r.Priority, Set: r.Set, LastUsed: used[r.Block.String()], Expires: r.Expires, MetaBytes: len(r.Meta), Stored: stored[r.Block],
		})
	}
	if err := inv.sessions(ctx, s); err != nil {
		return nil, err
	}
	segs, err := db.Collect(admin.Segments(ctx, s))
	if err != nil {
		return nil, err
	}
	for _, x := range segs {
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

func (inv *inventory) models(s *db.Store) error {
	all, err := db.Collect(s.Models())
	for _, m := range all {
		d := m.Descriptor
		line := modelLine{
			Name: d.Name, Fingerprint: m.Fingerprint.String(), Latest: m.Latest, Architecture: d.Architecture,
			Tensors: len(d.Tensors), BlockTokens: d.BlockTokens, TokenBytes: d.TokenBytes(),
			Blocks: m.Blocks, Records: m.Records, Bytes: m.Bytes,
		}
		if m.Err != nil {
			inv.problem(s.Dir(), m.Err.Error())
		}
		for _, g := range d.Groups {
			line.Groups = append(line.Groups, g.String())
		}
		inv.Models = append(inv.Models, line)
	}
	return err
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
func (inv *inventory) records(ctx context.Context, s *db.Store, report func(db.Progress)) (stored map[kv.Key]bool, err error) {
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
