package read

import (
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// State writes a state that l found into the rows of its tensors.
func (s *Source) State(l *prefix.Lookup, st *prefix.State, rows kv.Rows) error {
	return s.readState(l, st, func(r *segments.Record, i, tensor int, te segments.TensorEntry) error {
		t, dst := l.Model().Desc.Tensors[tensor], rows[tensor]
		if dst.Count() == 0 {
			return nil
		}
		if t.Width == 0 && int64(len(dst.Pieces[0].Mem)) < stateLength(te) {
			return fmt.Errorf("%w: %s: %d bytes for a state of %d", kv.ErrRows, t, len(dst.Pieces[0].Mem), stateLength(te))
		}
		if t.Width == 0 {
			dst = kv.Packed(dst.First, 1, dst.Pieces[0].Mem[:stateLength(te)])
		}
		return decodeVerified(r, i, te, dst, t, 0, 0)
	})
}

// StateBytes is how many bytes the state of a tensor has.
func (s *Source) StateBytes(l *prefix.Lookup, st *prefix.State, tensor int) (n int64, err error) {
	err = s.readState(l, st, func(_ *segments.Record, _, ti int, te segments.TensorEntry) error {
		if ti == tensor {
			t := l.Model().Desc.Tensors[ti]
			n = int64(t.RowBytes())
			if t.Width == 0 {
				n = stateLength(te)
			}
		}
		return nil
	})
	return n, err
}

// readState calls fn for each plane of a state's record, after comparing everything that identifies it.
func (s *Source) readState(l *prefix.Lookup, st *prefix.State, fn func(r *segments.Record, i, tensor int, te segments.TensorEntry) error) error {
	return s.Segments.Read(st.Loc, func(r *segments.Record) error {
		if err := identify(r, l.Model(), st.Key, st.Parent, st.Scope, st.Group, st.Start); err != nil {
			return err
		}
		if shared := r.MatchTokens(l.Prompt(), st.Start); st.Start+shared != st.At || r.TokenCount() != shared {
			return fmt.Errorf("%w: the state of block %s is not that after these %d tokens", prefix.ErrCollision, st.Key, st.At)
		}
		tensors, err := tensorsOf(r, l.Model(), st.Group)
		if err != nil {
			return err
		}
		for i, ti := range tensors {
			if err := fn(r, i, ti, r.Tensor(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// stateLength is the length of a state whose length varies: its plane is stored as it is.
func stateLength(te segments.TensorEntry) int64 { return int64(te.Length) }
