package read

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// layers are those from lo to hi.
type layers struct{ lo, hi int }

// anyLayer asks for the planes of all layers.
var anyLayer = layers{math.MinInt, math.MaxInt}

func (l layers) has(layer int) bool { return l.lo <= layer && layer <= l.hi }

// atOnce is the one step of a restore for which nobody waits for layers.
var atOnce = []layers{anyLayer}

// layersOf are the layers of a model's tensors, in order.
func layersOf(d *kv.Descriptor) []layers {
	var out []layers
	for _, t := range d.Tensors {
		out = append(out, layers{t.Layer, t.Layer})
	}
	slices.SortFunc(out, func(a, b layers) int { return cmp.Compare(a.lo, b.lo) })
	return slices.Compact(out)
}

// firstLayer restores the first layer of records that are not in memory, and reads little else. It does so through the map: the page cache
// has more short reads under way than goroutines have that wait for each.
func (r *run) firstLayer(ctx context.Context, first layers) error {
	var jobs []*job
	var places []segments.Loc // of the beginning of each job's record
	bytes, together := int64(0), true
	for i := range r.jobs {
		j := &r.jobs[i]
		at, all, any := r.beginning(j, first)
		if !any {
			continue
		}
		jobs, places = append(jobs, j), append(places, at)
		bytes, together = bytes+at.Length, together && all
	}
	ahead := newAhead(len(jobs), bytes, func(i int) { r.source.Segments.ReadAhead(places[i]) })
	if !together {
		for i, j := range jobs {
			ahead.to(i)
			r.source.askPlanes(r.found.Model().Desc, j.at(), first)
		}
	}
	r.source.Workers.Decode(len(jobs), func(i int) bool {
		ahead.to(i)
		r.do(jobs[i], first)
		return ctx.Err() == nil
	})
	return ctx.Err()
}

// head is about where the head of a job's record lies.
func (r *run) head(j *job) segments.Loc {
	const spans = 1 << 10 // if there are a few
	at := j.at()
	at.Length = min(at.Length, vfs.AlignDirect(segments.HeadBytes(j.hit.Tokens, len(r.found.Model().GroupTensors[j.group]))+spans))
	return at
}

// beginning is about where the head of a job's record lies and, if they follow it, all its planes of some layers. Any is whether it has any.
func (r *run) beginning(j *job, wanted layers) (at segments.Loc, all, any bool) {
	m := r.found.Model()
	before, mine, end := 0, 0, 0 // bytes of rows
	for _, ti := range m.GroupTensors[j.group] {
		t := m.Desc.Tensors[ti]
		before += t.RowBytes()
		if wanted.has(t.Layer) {
			mine += t.RowBytes()
			end = before
		}
	}
	at = r.head(j)
	if all = mine == end; all {
		length := j.at().Length
		at.Length = min(length, at.Length+vfs.AlignDirect(length*int64(mine)/int64(max(1, before))))
	}
	return at, all, end > 0
}

// askPlanes asks for a record's planes of some layers, once its head is there.
func (s *Source) askPlanes(d *kv.Descriptor, at segments.Loc, wanted layers) {
	s.Segments.Read(at, func(r *segments.Record) error {
		for i := range r.Tensors() {
			te := r.Tensor(i)
			if int(te.Tensor) < len(d.Tensors) && wanted.has(d.Tensors[te.Tensor].Layer) {
				s.Segments.ReadAhead(segments.Loc{Segment: at.Segment, Offset: at.Offset + int64(te.Offset), Length: int64(te.Length)})
			}
		}
		return nil
	})
}
