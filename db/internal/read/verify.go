package read

import (
	"context"

	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Verify reads every record that l found, compares all that a restore would, and measures what can be used of them. It marks what is bad in
// l only: the store does not remember that it was asked.
func (s *Source) Verify(ctx context.Context, l *prefix.Lookup) error {
	if err := l.ResolveAll(); err != nil {
		return err
	}
	for i := range l.Hits {
		h := &l.Hits[i]
		for g := range h.Groups {
			r := &h.Groups[g]
			if from, to := h.Covers(g); from < to {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := s.verifyHit(l, h, g, from, to); err != nil {
					r.Bad = s.Cause(h.Key, uint8(g), r.Loc, err)
				}
			}
		}
	}
	for {
		if err := l.Measure(); err != nil {
			return err
		}
		whole := true
		for i := range l.States {
			st := &l.States[i]
			if st.At != l.Tokens {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := s.readState(l, st, verifyPlane); err != nil {
				whole = false
				l.SetBroken(st, s.Cause(st.Key, uint8(st.Group), st.Loc, err))
			}
		}
		if whole {
			return nil
		}
	}
}

func verifyPlane(r *segments.Record, i, _ int, _ segments.TensorEntry) error {
	return r.VerifyPlane(i)
}

// verifyHit compares a record with what a restore of the rows [from, to) needs it to be, and every byte of its planes with their checksums.
func (s *Source) verifyHit(l *prefix.Lookup, h *prefix.Hit, group int, from, to int) error {
	w := &pooledDecoder{decoder: decoder{
		model: l.Model(), prompt: l.Prompt(), job: &job{hit: h, group: group, from: from, to: to, step: 1}, layers: anyLayer, planes: planes{step: 1},
		rows: make(kv.Rows, len(l.Model().Desc.Tensors)), // no memory: nothing is decoded
	}}
	return s.Segments.Read(h.Groups[group].Loc, func(r *segments.Record) error {
		if err := w.record(r); err != nil {
			return err
		}
		return r.Verify()
	})
}
