package read

import (
	"context"
	"errors"
	"sync"

	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// run is one restore under way. Pooled.
type run struct {
	source *Source
	found  *prefix.Lookup
	rows   kv.Rows
	part   bool

	jobs    []job
	written int64 // bytes that the jobs write
	ahead   *ahead
	cold    *cold // what is read around the page cache; nil: nothing

	segments []uint64 // a buffer
	reading  segments.Lease
}

// job is the rows [from, to) of one group of one hit, of some of the record's planes.
type job struct {
	hit         *prefix.Hit
	group       int
	from, to    int
	plane, step int  // every step-th plane, beginning with this one
	cold        bool // read around the page cache
	err         error
}

// at is where the job's record lies.
func (j *job) at() segments.Loc { return j.hit.Groups[j.group].Loc }

var runs = sync.Pool{New: func() any { return new(run) }}

func newRun(s *Source, l *prefix.Lookup, rows kv.Rows, part bool) *run {
	r := runs.Get().(*run)
	r.source, r.found, r.rows, r.part = s, l, rows, part
	return r
}

func (r *run) free() {
	clear(r.jobs)
	r.source, r.found, r.rows, r.ahead, r.jobs = nil, nil, nil, nil, r.jobs[:0]
	if cap(r.jobs) <= 1<<14 {
		runs.Put(r)
	}
}

// firstAsked is the first position of which there is memory for a row; 0 if there is none for any.
func firstAsked(d *kv.Descriptor, rows kv.Rows) int {
	first := -1
	for i, t := range d.Tensors {
		if d.Groups[t.Group].Kind != kv.StateAt && rows[i].Count() > 0 && (first < 0 || rows[i].First < first) {
			first = rows[i].First
		}
	}
	return max(first, 0)
}

// plan lists what there is to read, a job for each record, and returns the stored bytes of it. Records that end before the first row that is asked for are left
// out; of a part, all those without a row that is asked for.
func (r *run) plan() (stored int64) {
	l := r.found
	first := firstAsked(l.Model().Desc, r.rows)
	m, end := l.Model(), l.Tokens
	r.jobs, r.written = r.jobs[:0], 0
	for i := range l.Hits {
		h := &l.Hits[i]
		if h.Start >= end {
			break
		}
		for g := range h.Groups {
			from, to := h.Covers(g)
			to = min(to, end)
			if w := m.Desc.Groups[g].Window; w > 0 {
				from = max(from, end-w)
			}
			if m.Desc.Groups[g].Kind == kv.StateAt || from >= to {
				continue
			}
			none := true
			for _, t := range m.GroupTensors[g] {
				if n := min(to, r.rows[t].End()) - max(from, r.rows[t].First); n > 0 {
					r.written += int64(n * m.Desc.Tensors[t].RowBytes())
					none = false
				}
			}
			if none && (r.part || to <= first) {
				continue
			}
			stored += h.Groups[g].Loc.Length
			r.jobs = append(r.jobs, job{hit: h, group: g, from: from, to: to, step: 1})
		}
	}
	return stored
}

// split shares a few large records among the processors plane by plane.
func (r *run) split() {
	m := r.found.Model()
	workers := r.source.Workers.limit()
	n := len(r.jobs)
	if n >= 4*workers {
		return
	}
	for i := range n {
		step := min(4*workers/n, len(m.GroupTensors[r.jobs[i].group]))
		if step < 2 {
			continue
		}
		r.jobs[i].step = step
		for first := 1; first < step; first++ {
			j := r.jobs[i]
			j.plane = first
			r.jobs = append(r.jobs, j)
		}
	}
}

// work does the jobs from job first on, for some layers, and so many cold reads, those first that are there.
func (r *run) work(ctx context.Context, wanted layers, first, reads int) error {
	jobs := len(r.jobs) - first
	turns := turns{jobs: jobs, reads: reads}
	r.source.Workers.Decode(jobs+reads, func(i int) bool {
		if ctx.Err() != nil {
			return false
		}
		if reads > 0 {
			var job bool
			if i, job = turns.next(r.cold.stream); !job {
				r.cold.decode(wanted)
				return true
			}
		}
		i += first
		r.ahead.to(i)
		r.do(&r.jobs[i], wanted)
		return true
	})
	return ctx.Err()
}

// do reads a job's record through the map.
func (r *run) do(j *job, wanted layers) {
	j.err = readRows(r.source, j.at(), decoder{
		model: r.found.Model(), prompt: r.found.Prompt(), job: j, rows: r.rows, layers: wanted, written: r.written,
		planes: planes{first: j.plane, step: j.step},
	})
}

// spoiled marks the records that could not be restored, and reports them: errShorter. It is no record's fault where the rows could not be written.
func (r *run) spoiled() (err error) {
	for i := range r.jobs {
		j := &r.jobs[i]
		if j.err == nil {
			continue
		}
		if errors.Is(j.err, segments.ErrMemory) {
			return j.err
		}
		err = errShorter
		if g := &j.hit.Groups[j.group]; g.Bad == nil {
			g.Bad = r.source.Report(j.hit.Key, uint8(j.group), g.Loc, j.err)
		}
	}
	return err
}
