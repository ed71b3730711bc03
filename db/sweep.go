package db

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// sweepSegment dooms what lies from from on in a segment that an earlier process left, and v does not name: nothing will name
// it any more.
func (e *engine) sweepSegment(ctx context.Context, v *index.View, id uint64, from int64) (unsealed, error) {
	var unnamed []loc.Loc
	var records, torn []int64
	end, err := e.set.Scan(ctx, id, from, func(loc segments.Loc, rec *segments.Record) error {
		records = append(records, loc.Offset)
		entry, ok, err := v.Get(rec.Key(), rec.Group())
		// Where the header is lost, the scan does not know what lengths are multiples of.
		if at := entry.Loc; err == nil && (!ok || at.Segment != loc.Segment || at.Offset != loc.Offset) {
			unnamed = append(unnamed, loc)
		}
		return err
	}, func(d *damage.Error) {
		if !errors.Is(d, segments.ErrRemains) {
			e.log.Warn("segment is damaged", "error", d)
		}
		torn = append(torn, d.Offset/4096*4096)
	})
	if len(torn) > 0 && e.set.Ours(id) {
		// A record that a power cut tore: nothing names what lies up to the next one. What the index names may be
		// unreadable just now, and is left alone: it is damage for Verify to name, and nobody's to destroy.
		live := e.livePlaces(v, id)
		for _, at := range torn {
			i, _ := slices.BinarySearch(records, at+1)
			if next := append(records, end)[min(i, len(records))]; next > at && at >= from && !overlaps(live, at, next) {
				unnamed = append(unnamed, loc.Loc{Segment: id, Offset: at, Length: next - at})
			}
		}
		for _, l := range live {
			end = max(end, l.Offset+l.Length)
		}
	}
	if err != nil {
		return unsealed{}, err
	}
	e.catalog.BuryAt(unnamed...)
	return unsealed{id: id, from: from, end: end}, nil
}

// sealLeftover writes the footer that an earlier process did not get to, and the header if a power cut took it. What could not be
// read when the segment was swept, and can be now, is swept first.
func (e *engine) sealLeftover(ctx context.Context, u *unsealed) error {
	if u.from == 0 { // begun since the last checkpoint: its header may not have come to the disk
		empty := false // and without a header
		restored, err := e.set.RestoreHeader(u.id, func() []segments.Loc {
			live := e.placesIn(u.id)
			empty = len(live) == 0
			return live
		}, e.descriptor)
		if err != nil {
			return err
		}
		if empty && !e.set.Ours(u.id) {
			return nil
		}
		if empty { // what is torn in it would look like damage for ever
			e.catalog.Unlink(true, u.id) // what took the place of what lived in it must be safe first
			return nil
		}
		if restored { // without it nobody knew what lengths are multiples of: it is swept again, now or at the next try
			u.end = 0
		}
	}
	err := e.set.SealRecovered(u.id, u.end)
	if !errors.Is(err, segments.ErrBehind) {
		return err
	}
	v := e.view()
	defer v.Release()
	again, err := e.sweepSegment(ctx, v, u.id, u.from)
	if err != nil {
		return err
	}
	*u = again
	return e.set.SealRecovered(u.id, u.end)
}

// placesIn is livePlaces as of now.
func (e *engine) placesIn(id uint64) []segments.Loc {
	v := e.view()
	defer v.Release()
	return e.livePlaces(v, id)
}

// descriptor is that of a registered model, if it can be read.
func (e *engine) descriptor(fp kv.Fingerprint) (d kv.Descriptor, ok bool) {
	if m := e.catalog.Model(fp); m != nil && m.Load() == nil {
		return m.Desc, true
	}
	return d, false
}

// livePlaces are the records of a segment that the index names.
func (e *engine) livePlaces(v *index.View, id uint64) (live []index.Loc) {
	if err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		if x.Loc.Segment == id {
			live = append(live, x.Loc)
		}
		return true
	}); err != nil {
		live = append(live, index.Loc{Segment: id, Length: math.MaxInt64 / 2}) // unknown: all of it
	}
	return live
}

// overlaps reports whether one of the places lies in [from, to).
func overlaps(places []index.Loc, from, to int64) bool {
	return slices.ContainsFunc(places, func(l index.Loc) bool { return l.Offset < to && from < l.Offset+l.Length })
}
