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

// firstLayer restores the first layer of records that are not in memory, if it is at most a quarter of them, and reads little else. It does so
// through the map: the page cache has more short reads under way than goroutines have that wait for each. Done is false if nothing was
// restored.
func (r *run) firstLayer(ctx context.Context, first layers) (done bool, err error) {
	var jobs []*job
	var places []segments.Loc // of the beginning of each job's record
	asked, all, apart := int64(0), int64(0), int64(0)
	for i := range r.jobs {
		j := &r.jobs[i]
		all += j.at().Length
		at, other, has := r.beginning(j, first)
		if !has {
			continue
		}
		jobs, places = append(jobs, j), append(places, at)
		asked, apart = asked+at.Length+other, apart+other
	}
	if err := ctx.Err(); err != nil || 4*asked > all {
		return false, err
	}
	ask := func(i int) { r.source.Segments.ReadAhead(places[i]) }
	if apart > 0 { // all heads first, which say where the planes are
		for i := range places {
			ask(i)
		}
		ask = func(i int) { r.source.askPlanes(r.found.Model().Desc, jobs[i].at(), first) }
	}
	ahead := newAhead(len(jobs), asked, ask)
	r.source.Workers.Decode(len(jobs), func(i int) bool {
		if ctx.Err() != nil {
			return false
		}
		ahead.to(i)
		r.do(jobs[i], first)
		return true
	})
	return true, ctx.Err()
}

// head is about where the head of a job's record lies.
func (r *run) head(j *job) segments.Loc {
	const spans = 1 << 10 // if there are a few
	at := j.at()
	at.Length = min(at.Length, vfs.AlignDirect(segments.HeadBytes(j.hit.Tokens, len(r.found.Model().GroupTensors[j.group]))+spans))
	return at
}

// beginning is about where the head of a job's record lies, with all its planes of some layers if they follow it. Apart is how many bytes they
// have if they do not; has is whether there are any.
func (r *run) beginning(j *job, wanted layers) (at segments.Loc, apart int64, has bool) {
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
	length := j.at().Length
	share := vfs.AlignDirect(length * int64(mine) / int64(max(1, before)))
	if mine < end {
		return at, share, true
	}
	at.Length = min(length, at.Length+share)
	return at, 0, mine > 0
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
