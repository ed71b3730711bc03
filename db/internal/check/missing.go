package check

import (
	"cmp"
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/segments"
)

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
