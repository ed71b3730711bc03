package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/segments"
)

// segments checks every byte of every segment. What is dead is not looked into.
func (v *verifier) segments(ctx context.Context, live map[loc.Loc]recovery.Named) error {
	e := v.e
	seen, holds := map[loc.Loc]bool{}, map[uint64]bool{} // holds: the segments in which a live record lies
	for l := range live {
		holds[l.Segment] = true
	}
	for _, s := range e.Segments.Segments() {
		v.out.Files++
		err := e.Segments.Verify(ctx, s.ID, func(l loc.Loc) bool {
			_, ok := live[l]
			seen[l] = seen[l] || ok
			return ok
		}, func(d *damage.Error) {
			// Of a segment that holds something, no crash takes the header.
			if v.unfinished(s.ID, d.Offset) || errors.Is(d, segments.ErrRemains) && d.Offset > 0 {
				v.note("%v", d)
				return
			}
			v.report(d)
		}, v.read)
		v.passedBy()
		var bad *damage.Error
		isBad := errors.As(err, &bad)
		if errors.Is(err, segments.ErrMissing) {
			v.out.Files-- // if nothing lives in it, it was unlinked since it was listed: no lease keeps a segment that was dead before
			if isBad && holds[s.ID] {
				v.miss(s.ID, bad.Err)
			}
		} else if isBad {
			v.report(bad)
		} else if err != nil {
			if ctx.Err() != nil {
				return err
			}
			v.skip(s.ID, err)
		}
	}
	reported := map[string]bool{}
	for _, d := range v.out.Damage {
		reported[fmt.Sprint(d.File, d.Offset)] = true
	}
	var absent []index.Entry
	for loc, x := range live {
		if file := v.e.SegmentPath(loc.Segment); !seen[loc] && v.unread[loc.Segment] == nil && !reported[fmt.Sprint(file, loc.Offset)] {
			absent = append(absent, index.Entry{Loc: loc, Key: x.Key, Tokens: uint16(x.Tokens)})
			if v.gone(loc.Segment) {
				v.out.Records--
			}
		}
	}
	v.lost(absent)
	return nil
}

// unfinished reports whether off lies where an earlier process was still writing, or where destruction is decided and not
// yet done: no rot, but what a crash leaves.
func (v *verifier) unfinished(id uint64, off int64) bool {
	for _, u := range v.unsealed {
		if u.ID == id && off >= u.End {
			return true
		}
	}
	if v.e.Catalog.IsUnlinked(id) {
		return true
	}
	for _, l := range v.e.Catalog.Tombstones() {
		if l.Segment == id && l.Offset <= off && off < l.End() {
			return true
		}
	}
	return false
}

// miss reports a segment without a file, once.
func (v *verifier) miss(segment uint64, why error) {
	if !v.missing[segment] {
		v.missing[segment] = true
		v.report(&damage.Error{File: v.e.SegmentPath(segment), What: "segment", Err: why})
	}
}

// gone reports whether a segment has no file.
func (v *verifier) gone(segment uint64) bool {
	return v.missing[segment] || !v.e.Segments.Has(segment)
}

// lost reports records that are not there; of a segment that is missing, only that.
func (v *verifier) lost(records []index.Entry) {
	slices.SortFunc(records, func(a, b index.Entry) int {
		return cmp.Or(cmp.Compare(a.Loc.Segment, b.Loc.Segment), cmp.Compare(a.Loc.Offset, b.Loc.Offset))
	})
	for _, r := range records {
		if v.gone(r.Loc.Segment) {
			v.miss(r.Loc.Segment, segments.ErrMissing)
			continue
		}
		v.report(damage.New(v.e.SegmentPath(r.Loc.Segment), r.Loc.Offset, "record header", "block "+r.Key.String(), "no such record"))
	}
}

// mostUnproven bounds how many records unproven names one by one: a power cut may take thousands.
const mostUnproven = 32

// unproven notes records that are not whole and that no barrier covers: what a disk has lost and what is damaged look the same there.
func (v *verifier) unproven(records []index.Entry) {
	slices.SortFunc(records, func(a, b index.Entry) int {
		return cmp.Or(cmp.Compare(a.Loc.Segment, b.Loc.Segment), cmp.Compare(a.Loc.Offset, b.Loc.Offset))
	})
	for i, r := range records {
		if i == mostUnproven {
			v.note("%d more records are not whole, the last in %s", len(records)-i, v.e.SegmentPath(records[len(records)-1].Loc.Segment))
			return
		}
		bad := damage.New(v.e.SegmentPath(r.Loc.Segment), r.Loc.Offset, "record", "block "+r.Key.String()+", as the log says", "no such record, or not all of it")
		v.note("%v: it had not reached the disk when the store ended, or it was damaged since", bad)
	}
}
