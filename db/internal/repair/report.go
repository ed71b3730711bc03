package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// report lists what is lost: what was stored according to index and log, or was found by the scan, and is not saved.
func (w *damagedStore) report(ctx context.Context) error {
	for id, x := range w.entries {
		if !w.saved[id] {
			w.lose(x, w.failed[id])
		}
	}
	for id, x := range w.expected {
		if _, found := w.entries[id]; found || w.saved[id] {
			continue
		}
		why := w.probe(&x)
		_, logged := w.log.Names().Put[x.Loc] // and no later frame takes it away
		if errors.Is(why, segments.ErrDestroyed) && !w.exact && !(logged && !w.log.Damaged()) && w.set.Has(x.Loc.Segment) {
			continue // deleted or evicted: what would say so is lost
		}
		w.lose(x, why)
	}
	if err := w.survey(ctx); err != nil {
		return err
	}
	slices.SortFunc(w.out.Lost, func(a, b LostRecord) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Group, b.Group))
	})
	slices.SortStableFunc(w.out.Damage, func(a, b *damage.Error) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Offset, b.Offset))
	})
	return nil
}

// probe says why a record that index or log name was not even found by the recovery.
func (w *damagedStore) probe(x *index.Entry) error {
	err := w.set.Read(x.Loc, func(r *segments.Record) error {
		if err := isRecord(r, x); err != nil {
			return err
		}
		for i := range r.Tensors() {
			if err := r.VerifyPlane(i); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case w.found.Catalog.Model(x.Model) == nil:
		return fmt.Errorf("no segment header, index or log has the descriptor of model %s: %w", x.Model, engine.ErrNotFound)
	}
	return ErrPrefixLost
}

func (w *damagedStore) lose(x index.Entry, why error) {
	l := LostRecord{
		File: w.segmentPath(x.Loc.Segment), Offset: x.Loc.Offset, Bytes: x.Loc.Length,
		Block: x.Key, Group: int(x.Group), Model: x.Model, First: int(x.First), Tokens: int(x.Tokens), Err: why,
	}
	if m := w.found.Catalog.Model(x.Model); m != nil {
		l.ModelName = m.Name
	}
	switch {
	case errors.Is(why, ErrPrefixLost):
		l.Prefix = w.firstLost(x)
		l.Err = fmt.Errorf("%w: block %s", ErrPrefixLost, l.Prefix)
	case errors.Is(why, segments.ErrMissing): // or hidden
		for _, path := range []string{l.File, w.path(folder.SegmentsDir)} {
			if bad := w.unusable[path]; bad != nil {
				l.Err = bad
			}
		}
	case errors.Is(why, segments.ErrDestroyed):
		l.Err = damage.New(l.File, l.Offset, "record header", "block "+x.Key.String(), "zeros")
	}
	w.out.Lost = append(w.out.Lost, l)
}

// firstLost climbs from a record whose prefix is lost to the block that is lost for a reason of its own.
func (w *damagedStore) firstLost(x index.Entry) kv.Key {
	for {
		id, ok := recovery.Needs(&x)
		if !ok || w.saved[id] {
			return x.Key
		}
		up, ok := w.entries[id]
		if !ok || !errors.Is(w.failed[id], ErrPrefixLost) || x.Group == 0 && up.First >= x.First {
			return id.Key
		}
		x = up
	}
}

// headerEnd is the least offset of a record: what is damaged before it is a segment's header.
const headerEnd = 4096

// survey walks over the segments once more, for damage that no record which is known accounts for: a record whose header is
// broken, and which neither index nor log names.
func (w *damagedStore) survey(ctx context.Context) error {
	known := w.knownPlaces()
	for _, s := range w.set.Segments() {
		if at := (loc.Loc{Segment: s.ID, Offset: headerEnd}); s.Size == 0 && !w.exact && !(w.log.HasFirst && w.log.Young(at)) {
			w.unknown("%s: it is empty, and index.db cannot say whether something was stored in it", s.Path)
		}
		_, err := w.set.Scan(ctx, s.ID, 0, func(loc segments.Loc, r *segments.Record) error {
			if !w.exact && !known.has(s.ID, loc.Offset) && w.found.Catalog.Model(r.Model()) == nil && !w.found.Retired(w.set, r.Model()) {
				w.lose(index.Entry{
					Key: r.Key(), Group: r.Group(), Parent: r.Parent(), Model: r.Model(), Loc: loc, First: r.First(), Tokens: uint16(r.TokenCount()),
				}, fmt.Errorf("no segment header, index or log has the descriptor of model %s: %w", r.Model(), engine.ErrNotFound))
			}
			return nil
		}, func(d *damage.Error) {
			switch {
			case errors.Is(d, segments.ErrRemains):
			case d.What == "segment" || d.Offset < headerEnd:
				w.damaged(d)
				if !w.exact && d.What == "segment" {
					w.unknown("%s: records may have been lost with its end", d.File)
				}
			case w.exact || known.has(s.ID, d.Offset) || !w.log.Damaged() && w.log.Young(segments.Loc{Segment: s.ID, Offset: d.Offset}):
			default:
				w.out.Lost = append(w.out.Lost, LostRecord{File: d.File, Offset: d.Offset, Err: d})
			}
		})
		if err != nil && !errors.Is(err, damage.ErrCorrupt) {
			return err
		}
	}
	return nil
}

// places are the records that something tells about, dead ones included, by segment and offset.
type places map[uint64][]loc.Loc

func (w *damagedStore) knownPlaces() places {
	p := places{}
	add := func(l loc.Loc) { p[l.Segment] = append(p[l.Segment], l) }
	for _, x := range w.entries {
		add(x.Loc)
	}
	for _, x := range w.expected {
		add(x.Loc)
	}
	for _, dead := range []map[loc.Loc]bool{w.log.Tombstones(w.known.Extra), w.log.Names().Dead} {
		for l := range dead {
			add(l)
		}
	}
	for l := range w.log.Names().Put {
		add(l)
	}
	for _, l := range w.found.Catalog.Tombstones() {
		add(l)
	}
	for _, all := range p {
		slices.SortFunc(all, func(a, b loc.Loc) int { return cmp.Compare(a.Offset, b.Offset) })
	}
	return p
}

// has reports whether off lies in a record that is known.
func (p places) has(segment uint64, off int64) bool {
	all := p[segment]
	i, _ := slices.BinarySearchFunc(all, off+1, func(l loc.Loc, off int64) int { return cmp.Compare(l.Offset, off) })
	return i > 0 && off < all[i-1].Offset+all[i-1].Length
}
