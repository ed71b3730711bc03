package read

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/direct"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/segments"
)

const (
	unitBytes = 1 << 20   // of neighbours that are read at once, or of planes
	minUnit   = 64 << 10  // shorter ones are read through the map, which has more of them under way
	maxWhole  = 2 << 20   // a longer record is read in parts
	minShare  = 16 << 10  // what a record must have of a layer, for layers to be read one after the other
	goodShare = 256 << 10 // a device is about as fast with reads of so many bytes as with longer ones
	maxGap    = 64 << 10  // between planes, that is read, too
)

// findCold finds the jobs whose records are to be read around the page cache, takes them out of the run's, and begins to read; and has the
// map's way ask ahead for what else is not in memory. With several steps, layers are wanted one after the other. Whoever calls it calls
// stopCold at the end.
func (r *run) findCold(steps []layers) bool {
	defer func() { r.ahead = r.aheadOfJobs() }()
	c := &cold{run: r, files: files{}, steps: steps}
	if r.source.Ring == nil || r.underWay() || !c.find() {
		return false
	}
	mem, ok := r.source.Ring.Take()
	if !ok {
		c.files.close()
		return false
	}
	c.mem = mem
	rest := r.jobs[:0]
	for i := range r.jobs {
		if !r.jobs[i].cold {
			rest = append(rest, r.jobs[i])
		}
	}
	clear(r.jobs[len(rest):])
	r.jobs, r.cold = rest, c
	c.plan()
	c.start()
	r.takeBack()
	return true
}

// find makes units of whole records of the run's jobs, and marks all jobs that are cold. False: there is none.
func (c *cold) find() bool {
	r := c.run
	order := make([]int, len(r.jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := r.jobs[a].at(), r.jobs[b].at()
		return cmp.Or(cmp.Compare(x.Segment, y.Segment), cmp.Compare(x.Offset, y.Offset))
	})
	shapes := c.shapes()
	shares, parts := int64(0), int64(0)
	for len(order) > 0 {
		first := &r.jobs[order[0]]
		loc, shape := first.at(), &shapes[first.group]
		split := c.split(shape, loc)
		n := 1
		for ; !split && n < len(order); n++ {
			j := &r.jobs[order[n]]
			next, s := j.at(), &shapes[j.group]
			if next.Segment != loc.Segment || next.Offset != loc.End() || loc.Length+next.Length > unitBytes || c.split(s, next) {
				break
			}
			loc.Length += next.Length
		}
		mine := order[:n]
		order = order[n:]
		if loc.Length < minUnit || 4*c.missing(mine) < 3*loc.Length || shape.largest > direct.RingBytes || !c.files.has(r.source.Segments, loc.Segment) {
			continue
		}
		if split {
			shares, parts = shares+loc.Length/shape.layers, parts+1
		} else {
			c.units = append(c.units, unit{segment: loc.Segment, off: loc.Offset, size: int(loc.Length), job: len(c.jobs), jobs: n})
		}
		for _, i := range mine {
			r.jobs[i].cold = true
			c.jobs = append(c.jobs, coldJob{job: r.jobs[i], parts: split})
		}
	}
	if len(c.steps) > 1 && parts > 0 {
		c.steps = grow(c.steps, shares/parts)
	}
	return len(c.jobs) > 0
}

// missing is about how many bytes of jobs' records are not in memory. Each is asked about by itself, since the beginning of any may be there
// without the rest; of short ones that lie side by side, some. Where the system does not say, none is.
func (c *cold) missing(jobs []int) (bytes int64) {
	const each = 256 << 10
	left := int64(0) // bytes that were not asked about
	for n, i := range jobs {
		at := c.run.jobs[i].at()
		if left += at.Length; left < each && n < len(jobs)-1 {
			continue
		}
		missing, known := c.run.source.Segments.Missing(at)
		if !known {
			return 0
		}
		bytes += left * missing / at.Length
		left = 0
	}
	return bytes
}

// shape is what the records of a group have in common.
type shape struct {
	layers  int64
	largest int64 // bytes of the largest plane, uncoded
}

func (c *cold) shapes() []shape {
	m := c.run.found.Model()
	all := make([]shape, len(m.GroupTensors))
	for g, tensors := range m.GroupTensors {
		var in []int
		s := &all[g]
		for _, ti := range tensors {
			t := m.Desc.Tensors[ti]
			in = append(in, t.Layer)
			s.largest = max(s.largest, int64(m.Desc.BlockTokens)*int64(t.RowBytes()))
		}
		slices.Sort(in)
		s.layers = max(1, int64(len(slices.Compact(in))))
	}
	return all
}

// split reports whether a record is read in parts: if it is long, or if layers are wanted and it has enough of each.
func (c *cold) split(s *shape, loc segments.Loc) bool {
	return loc.Length > maxWhole || len(c.steps) > 1 && loc.Length/s.layers >= minShare
}

// grow joins layers to steps, each twice as many as the one before, until what a record of so many bytes a layer has of a step is well read.
func grow(each []layers, share int64) (steps []layers) {
	for n := 1; len(each) > 0; {
		n = min(n, len(each))
		steps = append(steps, layers{each[0].lo, each[n-1].hi})
		if each = each[n:]; int64(n)*share < goodShare {
			n *= 2
		}
	}
	return steps
}

// plan reads the heads of the records that are read in parts, through the map, and makes units of their planes: for each step in the order
// of the jobs. Nothing is being read around the page cache yet.
func (c *cold) plan() {
	r := c.run
	heads := make([]int, 0, len(c.jobs))
	for i := range c.jobs {
		if c.jobs[i].parts {
			heads = append(heads, i)
		}
	}
	for _, i := range heads {
		r.source.Segments.ReadAhead(r.head(&c.jobs[i].job))
	}
	rest := make([][]unit, len(c.steps))
	mine := make([][]unit, len(c.steps)) // of one record
	for _, i := range heads {
		j := &c.jobs[i]
		err := r.source.Segments.Read(j.at(), func(x *segments.Record) error {
			if err := identifyRows(x, r.found.Model(), r.found.Prompt(), j.hit, j.group, j.to); err != nil {
				return err
			}
			if _, err := tensorsOf(x, r.found.Model(), j.group); err != nil {
				return err
			}
			j.head = bytes.Clone(x.Head())
			for k, wanted := range c.steps {
				units, err := c.planes(mine[k][:0], x, i, wanted)
				if err != nil {
					return err
				}
				mine[k] = units
			}
			return nil
		})
		if err != nil {
			j.failed.Store(true)
			continue
		}
		for k, units := range mine {
			rest[k] = append(rest[k], units...)
		}
	}
	rest[0] = append(c.units, rest[0]...) // whole records come first
	c.units = slices.Concat(rest...)
	for _, units := range rest {
		c.counts = append(c.counts, len(units))
	}
}

// errLargePlane leaves a record to the map's way.
var errLargePlane = errors.New("a plane is larger than the ring")

// planes appends units of the planes that job i wants of some layers to none.
func (c *cold) planes(units []unit, r *segments.Record, i int, wanted layers) ([]unit, error) {
	j, m := &c.jobs[i], c.run.found.Model()
	var end int64 // of the last plane of the newest unit
	for p := range r.Tensors() {
		te := r.Tensor(p)
		dst := c.run.rows[te.Tensor]
		if !wanted.has(m.Desc.Tensors[te.Tensor].Layer) || max(j.from, dst.First) >= min(j.to, dst.End()) {
			continue
		}
		a, b := int64(te.Offset)&^(vfs.DirectAlign-1), min(vfs.AlignDirect(int64(te.Offset+te.Length)), r.Loc().Length)
		if b-a > direct.RingBytes {
			return nil, errLargePlane
		}
		if n := len(units); n > 0 {
			u := &units[n-1]
			if start := u.off - r.Loc().Offset; a-end <= maxGap && b-start <= unitBytes {
				u.size, u.to, end = int(b-start), p+1, b
				continue
			}
		}
		units = append(units, unit{segment: r.Loc().Segment, off: r.Loc().Offset + a, size: int(b - a), job: i, jobs: 1, from: p, to: p + 1})
		end = b
	}
	return units, nil
}
