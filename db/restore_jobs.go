package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/segments"
)

// restoreJob is the rows [from, to) of one group of one hit, of some of the record's planes.
type restoreJob struct {
	hit, group  int
	from, to    int
	plane, step int // every step-th plane, beginning with this one
	err         error
}

// anyLayer asks for the planes of all layers.
const anyLayer = -1 << 31

// restoreTokens writes the rows for the usable prefix, and returns the stored bytes that it read. errShorter says that
// something was bad, and is marked so.
func (x *Match) restoreTokens(ctx context.Context, e *engine, rows kv.Rows, ready func(layer, tokens int), some bool) (int64, error) {
	l := x.found
	total, err := x.restoreStates(ctx, e, rows, some)
	if err != nil {
		return 0, err
	}
	bytes, out := l.planJobs(e, rows, some)
	total += bytes
	layers := []int{anyLayer}
	if ready != nil {
		layers = x.m.ms.layers()
	}
	ahead := e.readAhead(l)
	for i, layer := range layers {
		if i > 0 {
			ahead = nil
		}
		if err := x.runJobs(ctx, e, rows, layer, out, ahead); err != nil {
			return 0, err
		}
		if l.spoiled(e) {
			return 0, errShorter
		}
		if ready != nil {
			ready(layer, l.tokens)
		}
	}
	return total, nil
}

// layers are the layers of the model's tensors, in order.
func (m *modelState) layers() []int {
	var out []int
	for _, t := range m.desc.Tensors {
		out = append(out, t.Layer)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// restoreStates writes the states that are valid at the end of the usable prefix; with some, only those that are asked for are read.
func (x *Match) restoreStates(ctx context.Context, e *engine, rows kv.Rows, some bool) (total int64, err error) {
	l := x.found
	bad := false
	for i := range l.states {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		st := &l.states[i]
		if st.at != l.tokens || some && !l.m.asked(st.group, rows) {
			continue
		}
		total += st.loc.Length
		if st.bad = x.restoreState(e, st, rows); st.bad == nil {
			continue
		}
		if errors.Is(st.bad, kv.ErrRows) {
			return 0, st.bad
		}
		bad = true
		st.bad = e.reportDamage(st.key, uint8(st.group), st.loc, st.bad)
		l.broken = append(l.broken, *st)
	}
	if bad {
		return 0, errShorter
	}
	return total, nil
}

// asked reports whether there is memory for a tensor of a group.
func (m *modelState) asked(group int, rows kv.Rows) bool {
	return slices.ContainsFunc(m.groupTensors[group], func(t int) bool { return rows[t].Count() > 0 })
}

// firstAsked is the first position of which there is memory for a row; 0 if there is none for any.
func (m *modelState) firstAsked(rows kv.Rows) int {
	first := -1
	for i, t := range m.desc.Tensors {
		if m.desc.Groups[t.Group].Kind != kv.StateAt && rows[i].Count() > 0 && (first < 0 || rows[i].First < first) {
			first = rows[i].First
		}
	}
	return max(first, 0)
}

// planJobs lists what there is to read, and returns the stored bytes and those that will be written. Records that end before the first
// row that is asked for are left out; with some, all those without a row that is asked for.
func (l *lookup) planJobs(e *engine, rows kv.Rows, some bool) (stored, written int64) {
	d, p := &l.m.desc, l.tokens
	first := l.m.firstAsked(rows)
	l.jobs = l.jobs[:0]
	for i := range l.hits {
		h := &l.hits[i]
		if h.start >= p {
			break
		}
		for g := range h.groups {
			from, to := h.covers(g)
			to = min(to, p)
			if w := d.Groups[g].Window; w > 0 {
				from = max(from, p-w)
			}
			if d.Groups[g].Kind == kv.StateAt || from >= to {
				continue
			}
			none := true
			for _, t := range l.m.groupTensors[g] {
				if n := min(to, rows[t].End()) - max(from, rows[t].First); n > 0 {
					written += int64(n * d.Tensors[t].RowBytes())
					none = false
				}
			}
			if none && (some || to <= first) {
				continue
			}
			stored += h.groups[g].loc.Length
			l.jobs = append(l.jobs, restoreJob{hit: i, group: g, from: from, to: to, step: 1})
		}
	}
	// A few large records are shared among the processors plane by plane.
	if workers := cap(e.crew.helpers) + 1; len(l.jobs) < 4*workers {
		for i, n := 0, len(l.jobs); i < n; i++ {
			step := min(4*workers/n, len(l.m.groupTensors[l.jobs[i].group]))
			if step < 2 {
				continue
			}
			l.jobs[i].step = step
			for first := 1; first < step; first++ {
				j := l.jobs[i]
				j.plane = first
				l.jobs = append(l.jobs, j)
			}
		}
	}
	return stored, written
}

// aheadBytes is how much of what is not in memory is asked for before it is needed: enough for a disk to work at its rate.
const aheadBytes = 16 << 20

// aheadState is how far a restore has asked for what comes.
type aheadState struct {
	asked atomic.Int64 // jobs
	depth int64        // jobs ahead of the one that is worked on
}

// readAhead looks whether a restore's records are in memory, and returns nil if so: asking costs time.
func (e *engine) readAhead(l *lookup) *aheadState {
	const samples = 8
	n := len(l.jobs)
	resident := true
	for i := 0; i < samples && resident && n > 0; i++ {
		j := &l.jobs[i*n/samples]
		resident = e.set.Resident(l.hits[j.hit].groups[j.group].loc)
	}
	if resident {
		return nil
	}
	bytes := int64(0)
	for i := range l.jobs {
		j := &l.jobs[i]
		bytes += l.hits[j.hit].groups[j.group].loc.Length
	}
	return &aheadState{depth: max(2, aheadBytes*int64(n)/max(1, bytes))}
}

// ask asks for the records that come after job i.
func (a *aheadState) ask(e *engine, l *lookup, i int) {
	if a == nil {
		return
	}
	for target := min(int64(len(l.jobs)), int64(i)+1+a.depth); ; {
		k := a.asked.Load()
		if k >= target {
			return
		}
		if a.asked.CompareAndSwap(k, k+1) {
			if j := &l.jobs[k]; j.plane == 0 {
				e.set.ReadAhead(l.hits[j.hit].groups[j.group].loc)
			}
		}
	}
}

// runJobs works all jobs off, for one layer or for any.
func (x *Match) runJobs(ctx context.Context, e *engine, rows kv.Rows, layer int, written int64, ahead *aheadState) error {
	l := x.found
	e.crew.run(len(l.jobs), func(i int) bool {
		if ctx.Err() != nil {
			return false
		}
		ahead.ask(e, l, i)
		w := restorers.Get().(*restorer)
		w.x, w.job, w.rows, w.layer, w.written = x, &l.jobs[i], rows, layer, written
		w.job.err = e.set.Read(l.hits[w.job.hit].groups[w.job.group].loc, w.read)
		w.x, w.job, w.rows = nil, nil, nil
		clear(w.pieces[:cap(w.pieces)])
		restorers.Put(w)
		return true
	})
	return ctx.Err()
}

// spoiled marks the groups that could not be restored, and reports them.
func (l *lookup) spoiled(e *engine) bool {
	bad := false
	for i := range l.jobs {
		j := &l.jobs[i]
		g := &l.hits[j.hit].groups[j.group]
		if j.err == nil {
			continue
		}
		bad = true
		if g.bad == nil {
			g.bad = e.reportDamage(l.hits[j.hit].key, uint8(j.group), g.loc, j.err)
		}
	}
	return bad
}

// restorer reads one job's record. Pooled, with the function that it hands to segments.Set.Read, so that a restored block
// costs no allocation.
type restorer struct {
	x       *Match
	job     *restoreJob
	rows    kv.Rows
	layer   int
	written int64
	pieces  []kv.Piece
	read    func(r *segments.Record) error
}

var restorers = sync.Pool{New: func() any {
	w := &restorer{pieces: make([]kv.Piece, 0, 4)}
	w.read = w.record
	return w
}}

// record writes the job's rows, after comparing everything that identifies the record.
func (w *restorer) record(r *segments.Record) error {
	x, job := w.x, w.job
	h, group, from, to := &x.found.hits[job.hit], job.group, job.from, job.to
	d := &x.m.ms.desc
	if err := x.identify(r, h.key, h.parent, h.scope, group, h.start); err != nil {
		return err
	}
	if shared := r.MatchTokens(&x.prompt, h.start); h.start+shared < min(h.end, to) {
		return fmt.Errorf("%w: record %s holds other tokens from position %d on", errCollision, h.key, h.start+shared)
	}
	if want := len(x.m.ms.groupTensors[group]); r.Tensors() != want {
		return fmt.Errorf("record %s has %d tensors, group %d has %d", h.key, r.Tensors(), group, want)
	}
	for i := job.plane; i < r.Tensors(); i += job.step {
		te := r.Tensor(i)
		ti := int(te.Tensor)
		if ti != x.m.ms.groupTensors[group][i] {
			return fmt.Errorf("plane %d of record %s is of tensor %d, in group %d it is tensor %d", i, h.key, ti, group, x.m.ms.groupTensors[group][i])
		}
		t := d.Tensors[ti]
		if w.layer != anyLayer && t.Layer != w.layer {
			continue
		}
		first := h.start + int(te.FirstRow)
		if first > from || first+int(te.Rows) < to {
			return fmt.Errorf("record %s has rows [%d, %d) of tensor %d, not [%d, %d)", h.key, first, first+int(te.Rows), ti, from, to)
		}
		dst := w.rows[ti]
		a, b := max(from, dst.First), min(to, dst.End())
		if a >= b {
			continue
		}
		dst = dst.SliceIn(w.pieces[:0], t, a, b)
		w.pieces = dst.Pieces
		if err := decodeVerified(r, i, te, dst, t, a-first, w.written); err != nil {
			return err
		}
	}
	return nil
}

// decodeVerified writes rows of plane i from row from on, and verifies its checksum on the way.
func decodeVerified(r *segments.Record, i int, te segments.TensorEntry, dst kv.TensorRows, t kv.Tensor, from int, written int64) error {
	err := quant.DecodeVerified(dst, t, planeOf(te), r.Plane(i), from, te.CRC, quant.DecodeOptions{Bytes: written})
	if err != nil {
		return placed(r, i, err)
	}
	return nil
}

// placed adds to a checksum's error where the plane lies.
func placed(r *segments.Record, i int, err error) error {
	var bad *damage.Error
	if errors.Is(err, quant.ErrChecksum) && errors.As(err, &bad) {
		return r.PlaneDamage(i, bad.Expected, bad.Found)
	}
	return err
}

// restoreRecord writes the rows [from, to) of one record into rows: what a put completes a block with.
func (x *Match) restoreRecord(e *engine, h *hit, group int, rows kv.Rows, from, to int) error {
	job := restoreJob{group: group, from: from, to: to, step: 1}
	w := &restorer{x: &Match{m: x.m, prompt: x.prompt, found: &lookup{hits: []hit{*h}}}, job: &job, rows: rows, layer: anyLayer}
	return e.set.Read(h.groups[group].loc, w.record)
}
