package recovery

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// sweep looks at the segments that were being written when the store was last open, and finds the records there that no frame names. Segments
// with room go on.
func (r *run) sweep(ctx context.Context) error {
	v := r.Index.View()
	defer v.Release()
	log := r.Log
	said := sync.OnceValue(r.ends)
	// A segment in which nothing lives is removed. After damage of the log, and where memory may not be what the disk has, nobody knows what lay there.
	resume := func(id uint64, end int64) bool {
		return log.HasFirst && !log.Damaged() && !r.Unsynced && v.Segment(id).Records > 0 && r.Segments.Resume(id, end)
	}
	for _, id := range r.Segments.Finished() {
		from, open := log.First.Ends[id]
		// Before the oldest log file began, it was finished, and everything in it was named.
		done := log.HasFirst && !open && id < log.First.Next.Segment
		// Whoever closed the store has cut and synced it.
		closed := open && r.Segments.EndsAt(id, from) && !log.Damaged() && said()[id] <= from
		if (!done || log.Damaged()) && !closed {
			r.Segments.Left(id) // before anything that rests on its records is acknowledged
		}
		switch {
		case done:
			continue
		case closed:
			resume(id, from)
			continue
		}
		left, unnamed, err := Sweep(ctx, r.Segments, v, id, from, r.Logger)
		if errors.Is(err, damage.ErrCorrupt) || errors.Is(err, segments.ErrMissing) {
			r.Logger.Error("segment cannot be read", "error", err)
			continue
		}
		if err != nil {
			return err
		}
		r.Catalog.BuryAt(unnamed...)
		if left.Torn || !resume(id, max(left.End, said()[id])) {
			r.Leftover = append(r.Leftover, left)
		}
	}
	return nil
}

// ends has for each segment the offset behind all places that the log or the catalog names. No record may come to such a place again, whatever
// became of the one that lay there.
func (r *run) ends() map[uint64]int64 {
	ends := map[uint64]int64{}
	add := func(l loc.Loc) { ends[l.Segment] = max(ends[l.Segment], l.End()) }
	r.Log.places(func(at loc.Loc, _ oplog.Use, _ uint64) { add(at) })
	for _, l := range r.Catalog.Tombstones() {
		add(l)
	}
	return ends
}

// Sweep finds what lies behind an offset of a segment that an earlier process left, and v does not name. Nothing will name it any more.
func Sweep(ctx context.Context, set *segments.Set, v *index.View, id uint64, from int64, log *slog.Logger) (left Leftover, unnamed []loc.Loc, err error) {
	var records, torn []int64
	end, err := set.Scan(ctx, id, from, func(at loc.Loc, rec *segments.Record) error {
		records = append(records, at.Offset)
		entry, ok, err := v.Get(rec.Key(), rec.Group())
		// Where the header is damaged, the scan does not know what lengths are multiples of.
		if live := entry.Loc; err == nil && (!ok || live.Segment != at.Segment || live.Offset != at.Offset) {
			unnamed = append(unnamed, at)
		}
		return err
	}, func(d *damage.Error) {
		if !errors.Is(d, segments.ErrRemains) {
			log.Warn("segment is damaged", "error", d)
		}
		torn = append(torn, d.Offset/4096*4096)
	})
	var live []loc.Loc
	if len(torn) > 0 || from == 0 && len(records) == 0 {
		live = Live(v, id)
	}
	if from == 0 && len(records)+len(live) == 0 {
		end = 0
	}
	if len(torn) > 0 && set.Ours(id) {
		// A record that a power cut tore: nothing names what lies up to the next one. What the index names may be
		// unreadable just now, and is left alone: it is damage for Verify to name, and nobody's to destroy.
		for _, at := range torn {
			i, _ := slices.BinarySearch(records, at+1)
			if next := append(records, end)[min(i, len(records))]; next > at && at > 0 && at >= from && !overlaps(live, at, next) {
				unnamed = append(unnamed, loc.Loc{Segment: id, Offset: at, Length: next - at})
			}
		}
		for _, l := range live {
			end = max(end, l.Offset+l.Length)
		}
	}
	return Leftover{ID: id, From: from, End: end, Torn: len(torn) > 0}, unnamed, err
}

// Live are the records of a segment that the index names.
func Live(v *index.View, id uint64) (live []loc.Loc) {
	if err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		if x.Loc.Segment == id {
			live = append(live, x.Loc)
		}
		return true
	}); err != nil {
		live = append(live, loc.Loc{Segment: id, Length: math.MaxInt64 / 2}) // unknown: all of it
	}
	return live
}

// overlaps reports whether one of the places lies in [from, to).
func overlaps(places []loc.Loc, from, to int64) bool {
	return slices.ContainsFunc(places, func(l loc.Loc) bool { return l.Offset < to && from < l.Offset+l.Length })
}
