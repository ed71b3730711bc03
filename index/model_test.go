package index

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// model is the index as plain maps: the thing beside which the real one is tested.
type model struct {
	blocks map[blockID]Entry // with Hashes, in group 0
}

type blockID struct {
	key   kv.Key
	group uint8
}

func newModel() *model         { return &model{blocks: map[blockID]Entry{}} }
func (m *model) clone() *model { return &model{blocks: maps.Clone(m.blocks)} }
func (m *model) entry(k kv.Key) (Entry, bool) {
	e, ok := m.blocks[blockID{k, 0}]
	return e, ok
}

func (m *model) children(parent kv.Key) (out []Entry) {
	for _, e := range m.blocks {
		if e.Group == 0 && e.Parent == parent {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(bytes.Compare(a.Scope[:], b.Scope[:]), compareChildren(a, b))
	})
	return out
}

func (m *model) isLeaf(k kv.Key) bool { return len(m.children(k)) == 0 }

// hashesOf are the hashes as the index orders them.
func hashesOf(e Entry) []byte {
	h := bytes.Clone(e.Hashes)
	if len(h) > maxHashBytes {
		h = h[:maxHashBytes]
	}
	for i := 0; i < len(h); i += 2 {
		if h[i]|h[i+1] == 0 {
			h[i+1] = 1
		}
	}
	return h
}

func compareChildren(a, b Entry) int {
	return cmp.Or(bytes.Compare(hashesOf(a), hashesOf(b)), bytes.Compare(a.Key[:], b.Key[:]))
}

func (m *model) put(e Entry) {
	old, had := m.blocks[blockID{e.Key, e.Group}]
	if had {
		if e.Rank == 0 {
			e.Rank = old.Rank
		}
		if e.Hits == 0 {
			e.Hits = old.Hits
		}
		if e.Used == 0 {
			e.Used = old.Used
		}
		if len(e.Hashes) == 0 {
			e.Hashes = old.Hashes
		}
	}
	if e.Group != 0 {
		e.Hashes = nil
	}
	m.blocks[blockID{e.Key, e.Group}] = e
	if had && e.Group == 0 && old.Parent != e.Parent {
		m.orphan(old)
	}
}

func (m *model) remove(k kv.Key, group uint8) {
	e, ok := m.blocks[blockID{k, group}]
	if !ok {
		return
	}
	delete(m.blocks, blockID{k, group})
	if group == 0 {
		m.orphan(e)
	}
}

func (m *model) orphan(e Entry) {
	if parent, ok := m.entry(e.Parent); ok && m.isLeaf(e.Parent) {
		parent.Rank, parent.Used = max(parent.Rank, e.Rank), max(parent.Used, e.Used)
		m.blocks[blockID{e.Parent, 0}] = parent
	}
}

// neighbors are the answers of View.Neighbors, by looking at every child.
func (m *model) neighbors(parent kv.Key, scope kv.ScopeID, hashes []byte) (before, after *Entry) {
	q := hashesOf(Entry{Hashes: hashes})
	for _, e := range m.children(parent) {
		if e.Scope != scope {
			continue
		}
		if bytes.Compare(hashesOf(e), q) < 0 {
			before = &e
		} else if after == nil {
			after = &e
		}
	}
	return before, after
}

func lcp(a, b Entry) (n int) {
	x, y := hashesOf(a), hashesOf(b)
	for n*2 < min(len(x), len(y)) && x[n*2] == y[n*2] && x[n*2+1] == y[n*2+1] {
		n++
	}
	return n
}

func (m *model) sorted() []Entry {
	out := slices.Collect(maps.Values(m.blocks))
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(bytes.Compare(a.Key[:], b.Key[:]), cmp.Compare(a.Group, b.Group))
	})
	return out
}

// check compares what the index says now, and has it verified.
func (m *model) check(t rapid.TB, ix *Index) {
	t.Helper()
	v := ix.View()
	defer v.Release()
	ok(t, m.compare(v))
	verifyClean(t, ix)
}

// compare asks v everything that it can answer. It returns what differs, or the error of v.
func (m *model) compare(v *View) error {
	bare := func(e Entry) Entry { e.Hashes = nil; return e }
	same := func(a, b Entry) bool { return fmt.Sprint(bare(a)) == fmt.Sprint(bare(b)) }

	sorted := m.sorted()
	var total Counts
	models, segments := map[kv.Fingerprint]Counts{}, map[uint64]SegmentCounts{}
	leaves, scopes := map[kv.Fingerprint][]Entry{}, map[kv.ScopeID][]kv.Key{}
	groups, parents := map[kv.Key][]Entry{}, map[kv.Key]bool{}
	for _, e := range sorted {
		got, ok, err := v.Get(e.Key, e.Group)
		if err != nil {
			return err
		}
		if !ok || !same(got, e) {
			return fmt.Errorf("Get(%s, %d) = %v, %v, want %v", e.Key, e.Group, got, ok, e)
		}
		b := int64(0)
		if e.Group == 0 {
			b = 1
			parents[e.Parent], parents[e.Key] = true, true
			if m.isLeaf(e.Key) {
				leaves[e.Model] = append(leaves[e.Model], e)
			}
			if e.Flags&FlagScopeRoot != 0 {
				scopes[e.Scope] = append(scopes[e.Scope], e.Key)
			}
		}
		groups[e.Key] = append(groups[e.Key], e)
		total = Counts{total.Blocks + b, total.Records + 1, total.Bytes + e.Loc.Length}
		c := models[e.Model]
		models[e.Model] = Counts{c.Blocks + b, c.Records + 1, c.Bytes + e.Loc.Length}
		s := segments[e.Loc.Segment]
		segments[e.Loc.Segment] = SegmentCounts{s.Records + 1, s.Bytes + e.Loc.Length}
	}

	var all []Entry
	if err := v.Blocks(kv.Key{}, 0, func(e Entry) bool { all = append(all, e); return true }); err != nil {
		return err
	}
	if !slices.EqualFunc(all, sorted, same) {
		return fmt.Errorf("Blocks = %d entries, want %d", len(all), len(sorted))
	}
	for k, want := range groups {
		var got []Entry
		if err := v.Groups(k, func(e Entry) bool { got = append(got, e); return true }); err != nil {
			return err
		}
		if !slices.EqualFunc(got, want, same) {
			return fmt.Errorf("Groups(%s) = %v, want %v", k, got, want)
		}
	}
	for k := range parents {
		if err := m.compareChildren(v, k); err != nil {
			return err
		}
	}
	for fp := range models {
		want := leaves[fp]
		slices.SortFunc(want, func(a, b Entry) int {
			return cmp.Or(cmp.Compare(a.Rank, b.Rank), bytes.Compare(a.Key[:], b.Key[:]))
		})
		var got []Entry
		if err := v.Leaves(fp, nil, func(k kv.Key, rank uint64) bool {
			got = append(got, Entry{Key: k, Rank: rank})
			return true
		}); err != nil {
			return err
		}
		if !slices.EqualFunc(got, want, func(a, b Entry) bool { return a.Key == b.Key && a.Rank == b.Rank }) {
			return fmt.Errorf("Leaves(%s) = %v, want %v", fp, got, want)
		}
		if len(want) > 1 { // the rest of the walk, behind its first
			first := true
			if err := v.Leaves(fp, &LeafPos{want[0].Rank, want[0].Key}, func(k kv.Key, _ uint64) bool {
				first = k == want[1].Key
				return false
			}); err != nil || !first {
				return cmp.Or(err, fmt.Errorf("Leaves(%s) behind the first is wrong", fp))
			}
		}
		if got := v.CountsOf(fp); got != models[fp] {
			return fmt.Errorf("CountsOf(%s) = %v, want %v", fp, got, models[fp])
		}
	}
	for scope, want := range scopes {
		for i := range len(want) + 1 {
			var from kv.Key
			if i > 0 {
				from = want[i-1]
			}
			var got []kv.Key
			if err := v.ScopeRoots(scope, from, func(k kv.Key) bool { got = append(got, k); return true }); err != nil {
				return err
			}
			if !slices.Equal(got, want[max(0, i-1):]) {
				return fmt.Errorf("ScopeRoots(%s, %s) = %v, want %v", scope, from, got, want[max(0, i-1):])
			}
		}
	}
	gotModels, gotSegments := map[kv.Fingerprint]Counts{}, map[uint64]SegmentCounts{}
	v.Models(func(fp kv.Fingerprint, c Counts) bool { gotModels[fp] = c; return true })
	v.Segments(func(id uint64, c SegmentCounts) bool { gotSegments[id] = c; return true })
	if v.Counts() != total || !maps.Equal(gotModels, models) || !maps.Equal(gotSegments, segments) {
		return fmt.Errorf("counts %v %v %v, want %v %v %v", v.Counts(), gotModels, gotSegments, total, models, segments)
	}
	return nil
}

func (m *model) compareChildren(v *View, k kv.Key) error {
	want := m.children(k)
	var got []kv.Key
	if err := v.Children(k, nil, func(c kv.Key, scope kv.ScopeID) bool {
		got = append(got, c)
		return true
	}); err != nil {
		return err
	}
	if !slices.EqualFunc(got, want, func(a kv.Key, b Entry) bool { return a == b.Key }) {
		return fmt.Errorf("Children(%s) = %v, want %v", k, got, want)
	}
	for i, e := range want {
		place := appendChildKey(nil, k, e.Scope, e.Hashes, e.Key)
		from := ChildPos{slices.Clone(place)}
		var rest []kv.Key
		if err := v.Children(k, &from, func(c kv.Key, _ kv.ScopeID) bool {
			rest = append(rest, c)
			return true
		}); err != nil {
			return err
		}
		if !slices.Equal(rest, got[i:]) || !bytes.Equal(from.row, place) {
			return fmt.Errorf("Children(%s) from the %d-th on = %v, want %v; it began at %x, not %x", k, i, rest, got[i:], from.row, place)
		}
	}
	has, err := v.HasChildren(k)
	if err != nil {
		return err
	}
	if has != (len(want) > 0) {
		return fmt.Errorf("HasChildren(%s) = %v, of %d", k, has, len(want))
	}
	for _, e := range want {
		if err := m.compareNeighbors(v, k, e.Scope, e.Hashes); err != nil {
			return err
		}
	}
	return nil
}

func (m *model) compareNeighbors(v *View, parent kv.Key, scope kv.ScopeID, hashes []byte) error {
	before, after, okB, okA, err := v.Neighbors(parent, scope, hashes)
	if err != nil {
		return err
	}
	wantB, wantA := m.neighbors(parent, scope, hashes)
	switch {
	case okB != (wantB != nil) || okB && before != wantB.Key:
		return fmt.Errorf("Neighbors(%s, %s, %x): before %s %v, want %v", parent, scope, hashes, before, okB, wantB)
	case okA != (wantA != nil) || okA && after != wantA.Key:
		return fmt.Errorf("Neighbors(%s, %s, %x): after %s %v, want %v", parent, scope, hashes, after, okA, wantA)
	}
	return nil
}
