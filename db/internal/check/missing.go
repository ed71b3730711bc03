package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// missing is a segment without a file, and what lay in it.
type missing struct {
	why     error
	records int
	blocks  map[kv.Key]int // their tokens
}

// miss notes that a segment has no file.
func (v *verifier) miss(segment uint64, why error) *missing {
	if v.missing == nil {
		v.missing = map[uint64]*missing{}
	}
	m := v.missing[segment]
	if m == nil {
		m = &missing{why: why, blocks: map[kv.Key]int{}}
		v.missing[segment] = m
	}
	return m
}

// gone reports whether a segment has no file.
func (v *verifier) gone(segment uint64) bool {
	return v.missing[segment] != nil || !v.e.Segments.Has(segment)
}

// lost reports records that are not there; those of a segment that is missing are counted instead, for reportMissing.
func (v *verifier) lost(records []index.Entry) {
	slices.SortFunc(records, func(a, b index.Entry) int {
		return cmp.Or(cmp.Compare(a.Loc.Segment, b.Loc.Segment), cmp.Compare(a.Loc.Offset, b.Loc.Offset))
	})
	for _, r := range records {
		if v.gone(r.Loc.Segment) {
			m := v.miss(r.Loc.Segment, segments.ErrMissing)
			m.records++
			m.blocks[r.Key] = int(r.Tokens)
			continue
		}
		v.report(damage.New(v.e.SegmentPath(r.Loc.Segment), r.Loc.Offset, "record header", "block "+r.Key.String(), "no such record"))
	}
}

// reportMissing names each segment that is missing once, with how much lay in it.
func (v *verifier) reportMissing() {
	for _, id := range slices.Sorted(maps.Keys(v.missing)) {
		m, tokens := v.missing[id], 0
		for _, n := range m.blocks {
			tokens += n
		}
		v.report(&damage.Error{
			File: v.e.SegmentPath(id), What: "segment", Err: m.why,
			Expected: fmt.Sprintf("%s, of %s", damage.Count(m.records, "record"), damage.Count(tokens, "token")),
		})
	}
}
