package read

import (
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

// findCold finds the jobs whose records are to be read around the page cache, takes them out of the run's, and has the map's way ask ahead
// for what else is not in memory. With several steps, layers are wanted one after the other.
func (r *run) findCold(steps []layers) bool {
	if r.inMemory() {
		return false
	}
	defer r.startAhead()
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
	return true
}

// find makes units of the run's jobs, and marks those jobs. False: there is nothing to read.
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
			if next.Segment != loc.Segment || next.Offset != loc.End() || loc.Length+next.Length > unitBytes || s.first != shape.first || c.split(s, next) {
				break
			}
			loc.Length += next.Length
		}
		mine := order[:n]
		order = order[n:]
		missing, known := r.source.Segments.Missing(loc)
		if !known || loc.Length < minUnit || 4*missing <= 3*loc.Length || shape.largest > direct.RingBytes || !c.files.has(r.source.Segments, loc.Segment) {
			continue
		}
		u := unit{segment: loc.Segment, off: loc.Offset, size: int(loc.Length), job: len(c.jobs), jobs: n}
		for _, i := range mine {
			r.jobs[i].cold = true
			c.jobs = append(c.jobs, coldJob{job: r.jobs[i], parts: split})
		}
		if split {
			u.size = c.beginning(first, shape, loc.Length)
			shares, parts = shares+loc.Length/shape.layers, parts+1
		}
		if shape.first {
			c.units = append(c.units, u)
		} else {
			c.later = append(c.later, u)
		}
	}
	if len(c.units) == 0 { // none has the first layer
		c.units, c.later = c.later, nil
	}
	if len(c.steps) > 1 && parts > 0 {
		c.steps = grow(c.steps, shares/parts)
	}
	return len(c.units) > 0
}

// shape is what the records of a group have in common.
type shape struct {
	layers  int64
	first   bool  // it has the first step's layers
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
			s.first = s.first || c.steps[0].has(t.Layer)
			s.largest = max(s.largest, int64(m.Desc.BlockTokens)*int64(t.RowBytes()))
		}
		slices.Sort(in)
		s.layers = max(1, int64(len(slices.Compact(in))))
	}
	return all
}

// split reports whether a record is read in parts: if it is long, or has the first layer and enough of each.
func (c *cold) split(s *shape, loc segments.Loc) bool {
	return loc.Length > maxWhole || len(c.steps) > 1 && s.first && loc.Length/s.layers >= minShare
}

// beginning is how much is read of the beginning of a record of so many bytes: the head and, if it is not much, the planes of the first
// step; of a long one that is wanted as a whole, a part.
func (c *cold) beginning(j *job, s *shape, length int64) int {
	const spans = 1 << 10 // of the head, if there are a few
	m := c.run.found.Model()
	tensors := m.GroupTensors[j.group]
	n := int64(unitBytes)
	if len(c.steps) > 1 {
		n = segments.HeadBytes(j.hit.Tokens, len(tensors)) + spans
		wanted, all := 0, 0
		for _, ti := range tensors {
			t := m.Desc.Tensors[ti]
			if all += t.RowBytes(); c.steps[0].has(t.Layer) {
				wanted = all
			}
		}
		if planes := length * int64(wanted) / int64(max(1, all)); planes <= length/2 {
			n += planes
		}
	}
	return int(min(vfs.AlignDirect(n), length, direct.RingBytes))
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

// findRest makes units of what the beginnings have left for the steps [from, to): for each step its planes, in the order of the jobs.
func (c *cold) findRest(from, to int) {
	rest := make([][]unit, to)
	if at := min(1, len(c.steps)-1); from <= at && at < to {
		rest[at] = c.later
	}
	for i := range c.jobs {
		j := &c.jobs[i]
		if !j.parts || j.failed.Load() || to == 1 && j.next == noPlane {
			continue
		}
		err := c.run.source.Segments.ReadPart(j.at(), j.head, nil, 0, func(r *segments.Record) error {
			for k := from; k < to; k++ {
				first := 0
				if k == 0 {
					first = j.next
				}
				units, err := c.planes(rest[k], r, i, c.steps[k], first)
				if err != nil {
					return err
				}
				rest[k] = units
			}
			return nil
		})
		if err != nil {
			j.failed.Store(true)
		}
	}
	for _, units := range rest[from:] {
		c.counts = append(c.counts, len(units))
		c.units = append(c.units, units...)
	}
}

// errLargePlane leaves a record to the map's way.
var errLargePlane = errors.New("a plane is larger than the ring")

// planes appends units of the planes, from one on, that job i wants of some layers. The record's table was compared with its beginning.
func (c *cold) planes(units []unit, r *segments.Record, i int, wanted layers, from int) ([]unit, error) {
	j, m := &c.jobs[i], c.run.found.Model()
	var end int64 // of the last plane of the newest unit
	mine := len(units)
	for p := from; p < r.Tensors(); p++ {
		te := r.Tensor(p)
		dst := c.run.rows[te.Tensor]
		if !wanted.has(m.Desc.Tensors[te.Tensor].Layer) || max(j.from, dst.First) >= min(j.to, dst.End()) {
			continue
		}
		a, b := int64(te.Offset)&^(vfs.DirectAlign-1), min(vfs.AlignDirect(int64(te.Offset+te.Length)), r.Loc().Length)
		if b-a > direct.RingBytes {
			return nil, errLargePlane
		}
		if n := len(units); n > mine {
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
