package db

import (
	"context"
	"errors"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// readAll reads every record that the lookup found, compares all that a restore would, and settles what can be used of them. It
// marks what is bad in the lookup only: the store does not remember that it was asked.
func (x *Match) readAll(ctx context.Context, e *engine) error {
	l := x.found
	if err := l.resolveTo(l.limit); err != nil {
		return err
	}
	for i := range l.hits {
		h := &l.hits[i]
		for g := range h.groups {
			r := &h.groups[g]
			if from, to := h.covers(g); from < to {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := x.readHit(e, h, g, from, to); err != nil {
					r.bad = e.foundBad(h.key, uint8(g), r.loc, err)
				}
			}
		}
	}
	for {
		if err := l.settle(); err != nil {
			return err
		}
		whole := true
		for i := range l.states {
			st := &l.states[i]
			if st.at != l.tokens {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := x.readState(e, st, verifyPlane); err != nil {
				whole = false
				st.bad = e.foundBad(st.key, uint8(st.group), st.loc, err)
				l.broken = append(l.broken, *st)
			}
		}
		if whole {
			return nil
		}
	}
}

func verifyPlane(r *segments.Record, i int, _ kv.Tensor, _ segments.TensorEntry) error {
	return r.VerifyPlane(i)
}

// readHit compares a record with what a restore of the rows [from, to) needs it to be, and every byte of its planes with their checksums.
func (x *Match) readHit(e *engine, h *hit, group int, from, to int) error {
	job := restoreJob{group: group, from: from, to: to, step: 1}
	w := &restorer{
		x: &Match{m: x.m, prompt: x.prompt, found: &lookup{hits: []hit{*h}}}, job: &job, layer: anyLayer,
		rows: make(kv.Rows, len(x.m.ms.desc.Tensors)), // no memory: nothing is decoded
	}
	return e.set.Read(h.groups[group].loc, func(r *segments.Record) error {
		if err := w.record(r); err != nil {
			return err
		}
		for i := range r.Tensors() {
			if err := r.VerifyPlane(i); err != nil {
				return err
			}
		}
		return nil
	})
}

// foundBad returns the cause for which a record cannot be used as users are to see it: a record of zeros is one that was destroyed,
// unless the index has it still; then somebody else wrote the zeros.
func (e *engine) foundBad(key kv.Key, group uint8, loc index.Loc, cause error) error {
	if e.overtaken() { // a writer destroys the header first: it tells damage from what that one is destroying
		if err := e.set.Read(loc, func(*segments.Record) error { return nil }); errors.Is(err, segments.ErrDestroyed) {
			return err
		}
		return cause
	}
	if !errors.Is(cause, segments.ErrDestroyed) {
		return cause
	}
	v := e.view()
	x, ok, err := v.Get(key, group)
	v.Release()
	if err == nil && (!ok || x.Loc != loc) {
		return cause
	}
	return damage.New(e.segmentPath(loc.Segment), loc.Offset, "record header", "block "+key.String(), "zeros")
}
