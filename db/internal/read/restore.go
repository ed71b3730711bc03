package read

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/kv"
)

// Restore writes a found prefix into rows and returns the stored bytes that it read. What fails a check is reported, and marked in l: the
// next shorter prefix is tried, until one is right. Afterwards l.Tokens and l.Reason say what was restored; rows beyond may hold anything.
//
// rows has one entry for each tensor. They end the prefix where they end; with part they are a part of it and do not, and what they leave
// out is not read. ready, if there is one, is told each layer when its rows are there.
//
// The error is one of the index, of the context, or wraps kv.ErrRows.
func (s *Source) Restore(ctx context.Context, l *prefix.Lookup, rows kv.Rows, ready func(layer, tokens int), part bool) (bytes int64, err error) {
	if l.Tokens == 0 {
		return 0, nil
	}
	s.Workers.Restores.Enter()
	defer s.Workers.Restores.Leave()
	if err := l.ResolveTo(l.Tokens); err != nil {
		return 0, err
	}
	promised, why := l.Tokens, l.Reason
	room := promised
	if !part {
		room = min(room, roomFor(l.Model().Desc, rows))
	}
	cut := room < promised
	l.CutAt(room, cut) // what lies beyond may have been stored, or have become usable, after the lease was taken
	run := newRun(s, l, rows, part)
	defer run.free()
	s.Segments.AcquireIn(&run.reading) // what a shorter prefix needs, a state beside another block, nobody has pinned
	defer run.reading.Release()
	for {
		before := l.Tokens
		if err := l.Measure(); err != nil { // what was resolved, or read, may be bad
			return 0, err
		}
		switch {
		case cut && (l.Reason.Code == kv.Complete || room == 0):
			l.Reason = kv.Reason{Code: kv.MemoryShort, At: room}
		case l.Tokens == promised:
			l.Reason = why
		}
		if l.Tokens > before {
			return 0, fmt.Errorf("db: internal: a damaged block made the match longer: %d and %d tokens", before, l.Tokens)
		}
		if l.Tokens == promised { // all of that is pinned: the callback of layers may take its time
			run.reading.Release()
		}
		if bytes, err = run.restore(ctx, ready); !errors.Is(err, errShorter) {
			return bytes, err
		}
		run.reading.Release()
		s.Segments.AcquireIn(&run.reading)
	}
}

// roomFor is how many tokens there is memory for.
func roomFor(d *kv.Descriptor, rows kv.Rows) int {
	room := int(^uint(0) >> 1)
	for i, t := range d.Tensors {
		if d.Groups[t.Group].Kind != kv.StateAt && len(rows[i].Pieces) > 0 {
			room = min(room, rows[i].End())
		}
	}
	return room
}

// errShorter says that something was marked as bad: the usable prefix has to be measured anew.
var errShorter = errors.New("shorter")

// restore writes the rows of the usable prefix, and returns the stored bytes that it read. errShorter says that something was bad, and is
// marked so.
func (r *run) restore(ctx context.Context, ready func(layer, tokens int)) (int64, error) {
	total, err := r.restoreStates(ctx)
	if err != nil {
		return 0, err
	}
	total += r.plan()
	r.ahead = nil
	defer r.stopCold()
	each := atOnce
	if ready != nil {
		each = layersOf(r.found.Model().Desc)
	}
	steps := each
	if !r.inMemory() {
		if len(each) > 1 {
			done, err := r.firstLayer(ctx, each[0])
			if err == nil {
				err = r.spoiled()
			}
			if err != nil {
				return 0, err
			}
			if done {
				r.tell(ready, each, each[0])
				steps = each[1:]
			}
		}
		if r.findCold(steps) {
			steps = r.cold.steps
		}
	}
	r.split()
	for i, wanted := range steps {
		if err := r.step(ctx, i, wanted); err != nil {
			return 0, err
		}
		if err := r.spoiled(); err != nil {
			return 0, err
		}
		if ready != nil {
			r.tell(ready, each, wanted)
		}
		r.ahead = nil
	}
	if r.cold != nil {
		r.again()
	}
	return total, nil
}

// tell says which layers are there. Meanwhile it is the caller who works: nobody gives way to that.
func (r *run) tell(ready func(layer, tokens int), each []layers, wanted layers) {
	restores := &r.source.Workers.Restores
	restores.Leave()
	defer restores.Enter()
	for _, l := range each {
		if wanted.has(l.lo) {
			ready(l.lo, r.found.Tokens)
		}
	}
}

// step reads the i-th of the steps in which layers are wanted. What failed around the page cache is read once more through the map, so that
// there is one way only to say what is wrong with it.
func (r *run) step(ctx context.Context, i int, wanted layers) error {
	if r.cold == nil {
		return r.work(ctx, wanted, 0, 0)
	}
	first := 0
	for reads := r.cold.counts[i]; reads > 0 || first < len(r.jobs); reads = 0 {
		jobs := len(r.jobs)
		if err := r.work(ctx, wanted, first, reads); err != nil {
			return err
		}
		first = jobs
		r.takeBack()
	}
	return nil
}

// restoreStates writes the states that are valid at the end of the usable prefix; of a part, only those that are asked for are read.
func (r *run) restoreStates(ctx context.Context) (total int64, err error) {
	l := r.found
	bad := false
	for i := range l.States {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		st := &l.States[i]
		if st.At != l.Tokens || r.part && !asked(l.Model(), st.Group, r.rows) {
			continue
		}
		total += st.Loc.Length
		err := r.source.State(l, st, r.rows)
		if err == nil {
			continue
		}
		if errors.Is(err, kv.ErrRows) {
			return 0, err
		}
		bad = true
		l.SetBroken(st, r.source.Report(st.Key, uint8(st.Group), st.Loc, err))
	}
	if bad {
		return 0, errShorter
	}
	return total, nil
}

// asked reports whether there is memory for a tensor of a group.
func asked(m *prefix.Model, group int, rows kv.Rows) bool {
	return slices.ContainsFunc(m.GroupTensors[group], func(t int) bool { return rows[t].Count() > 0 })
}
