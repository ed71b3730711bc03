package admin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// report says what is lost, and what else is damaged. What the check found in a record that is lost is said with that record.
func (w *damagedStore) report() {
	w.out.Notes = append(w.out.Notes, w.found.Notes...)
	said := map[place]bool{}
	w.absent(said)
	known := w.byFile()
	for _, d := range slices.Concat(w.fs.damage, w.found.Damage, w.e.Recovered.Found.Log.Damage, w.e.Recovered.Found.Damage) {
		at := place{d.File, d.Offset}
		if bad := w.fs.bad[d.File]; said[at] || bad != nil && bad != d { // then nothing of that file can be read
			continue
		}
		said[at] = true
		x, ok := within(known[d.File], d.Offset)
		switch {
		case ok && !w.saved[recovery.IDOf(&x)]:
		case !ok && w.mayHold(d, len(known[d.File])):
			w.out.Lost = append(w.out.Lost, LostRecord{File: d.File, Offset: d.Offset, Err: d})
		default:
			w.damaged(d)
		}
	}
	for id, x := range w.entries {
		if !w.saved[id] {
			w.lose(x, w.failed[id])
		}
	}
	w.out.Unknown = strings.Join(w.unknown(), "; ")
	slices.SortFunc(w.out.Lost, func(a, b LostRecord) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Group, b.Group))
	})
	slices.SortStableFunc(w.out.Damage, func(a, b *damage.Error) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Offset, b.Offset))
	})
}

// place is where damage begins.
type place struct {
	file string
	off  int64
}

// absent adds to the entries what the recovery knows of and left out, and to said what the check takes for damage and is none: zeros in the place
// of a record that a lost frame of the log may have deleted.
func (w *damagedStore) absent(said map[place]bool) {
	r := w.e.Recovered.Found
	lost := func(x index.Entry, why error) {
		id := recovery.IDOf(&x)
		if _, ok := w.entries[id]; !ok {
			w.entries[id], w.failed[id] = x, why
		}
	}
	for _, x := range r.Absent {
		file := w.e.SegmentPath(x.Loc.Segment)
		i := slices.IndexFunc(r.Damage, func(d *damage.Error) bool {
			return d.File == file && x.Loc.Offset <= d.Offset && d.Offset < x.Loc.End()
		})
		switch {
		case i >= 0:
			lost(x, r.Damage[i])
		case r.Log.Damaged() && w.e.Segments.Has(x.Loc.Segment):
			said[place{file, x.Loc.Offset}] = true
		default:
			lost(x, damage.New(file, x.Loc.Offset, "record", "block "+x.Key.String(), "no such record"))
		}
	}
	for _, x := range r.Left {
		if w.e.Catalog.Model(x.Model) != nil {
			lost(x, ErrPrefixLost)
		} else if !r.Retired(w.e.Segments, x.Model) {
			lost(x, noDescriptor(x.Model))
		}
	}
}

func noDescriptor(fp kv.Fingerprint) error {
	return fmt.Errorf("no segment header, index or log has the descriptor of model %s: %w", fp, engine.ErrNotFound)
}

// byFile lists the entries by the path of their segment, in the order in which they lie there.
func (w *damagedStore) byFile() map[string][]index.Entry {
	out := map[string][]index.Entry{}
	for _, x := range w.entries {
		path := w.e.SegmentPath(x.Loc.Segment)
		out[path] = append(out[path], x)
	}
	for _, all := range out {
		slices.SortFunc(all, func(a, b index.Entry) int { return cmp.Compare(a.Loc.Offset, b.Loc.Offset) })
	}
	return out
}

// within returns the one of the entries of a file in which off lies.
func within(all []index.Entry, off int64) (x index.Entry, ok bool) {
	i, _ := slices.BinarySearchFunc(all, off+1, func(x index.Entry, off int64) int { return cmp.Compare(x.Loc.Offset, off) })
	if i == 0 || off >= all[i-1].Loc.End() {
		return x, false
	}
	return all[i-1], true
}

// headerEnd is the least offset of a record: what is damaged before it is a segment's header.
const headerEnd = 4096

// mayHold reports whether a record may have been where d is, of which nothing tells: not if there is an index, nor in a header behind which
// records were found.
func (w *damagedStore) mayHold(d *damage.Error, records int) bool {
	return w.e.Recovered.Found.Rebuilt && strings.HasSuffix(d.File, ".seg") && !errors.Is(d, segments.ErrMissing) &&
		(d.Offset >= headerEnd || d.What == "segment" || records == 0)
}

func (w *damagedStore) lose(x index.Entry, why error) {
	l := LostRecord{
		File: w.e.SegmentPath(x.Loc.Segment), Offset: x.Loc.Offset, Bytes: x.Loc.Length,
		Block: x.Key, Group: int(x.Group), Model: x.Model, First: int(x.First), Tokens: int(x.Tokens), Err: why,
	}
	if m := w.e.Catalog.Model(x.Model); m != nil {
		l.ModelName = m.Name
	}
	switch {
	case errors.Is(why, ErrPrefixLost):
		l.Prefix = w.firstLost(x)
		l.Err = fmt.Errorf("%w: block %s", ErrPrefixLost, l.Prefix)
	case w.fs.bad[l.File] != nil:
		l.Err = w.fs.bad[l.File]
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

// unknown says what nobody can know any more.
func (w *damagedStore) unknown() (why []string) {
	r := w.e.Recovered.Found
	switch {
	case !r.Log.HasFirst && len(r.Applied.Extra) == 0:
		why = append(why, "neither log nor index can be read: refs are lost, and what was deleted is back if its bytes were not yet destroyed")
	case !r.Log.HasFirst:
		why = append(why, "the log, or its end, is lost: refs and deletions are as of the last checkpoint; "+
			"what was deleted after it is back if its bytes were not yet destroyed")
	case r.Log.Damaged():
		why = append(why, "the log is damaged, or ends in what a crash leaves: what the frames that are lost said of refs and deletions is not known; "+
			"what they deleted is back if its bytes were not yet destroyed")
	case r.Rebuilt:
		if missing := w.missingSegments(); len(missing) > 0 {
			why = append(why, fmt.Sprintf("%s (%s) are not there, and index.db cannot say whether they were given up or are lost",
				damage.Count(len(missing), "segment"), strings.Join(missing, ", ")))
		}
	}
	if r.Rebuilt && len(w.remains) > 0 {
		at := w.remains[0]
		why = append(why, fmt.Sprintf("what lies behind zeros in %s, the first %s at offset %d, is of records that were destroyed or of records that are lost: index.db, which would tell, is damaged or not there",
			damage.Count(len(w.remains), "place"), at.File, at.Offset))
	}
	for _, name := range []string{folder.SegmentsDir, folder.SessionsDir} {
		if bad := w.fs.bad[w.path(name)]; bad != nil {
			why = append(why, fmt.Sprintf("what was in a folder is not known: %v", bad))
		}
	}
	return why
}

// missingSegments are those that were before the log began, are not there, and that nothing says to be given up.
func (w *damagedStore) missingSegments() (ids []string) {
	for id := uint64(1); id < w.e.Recovered.Found.Log.First.Next.Segment; id++ {
		if !w.e.Catalog.IsUnlinked(id) && !w.e.Segments.Has(id) {
			ids = append(ids, fmt.Sprint(id))
		}
	}
	if len(ids) > 8 {
		ids = append(ids[:8], "…")
	}
	return ids
}
