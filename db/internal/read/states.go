package read

import (
	"fmt"

	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// State writes a state that l found into the rows of its tensors.
func (s *Source) State(l *prefix.Lookup, st *prefix.State, rows kv.Rows) error {
	return s.readState(l, st, func(r *segments.Record, i int, t kv.Tensor, te segments.TensorEntry) error {
		dst := rows[te.Tensor]
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
	err = s.readState(l, st, func(_ *segments.Record, _ int, t kv.Tensor, te segments.TensorEntry) error {
		if int(te.Tensor) == tensor {
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
func (s *Source) readState(l *prefix.Lookup, st *prefix.State, fn func(r *segments.Record, i int, t kv.Tensor, te segments.TensorEntry) error) error {
	d, tensors := l.Model().Desc, l.Model().GroupTensors[st.Group]
	return s.Segments.Read(st.Loc, func(r *segments.Record) error {
		if err := identify(r, l.Model(), st.Key, st.Parent, st.Scope, st.Group, st.Start); err != nil {
			return err
		}
		if shared := r.MatchTokens(l.Prompt(), st.Start); st.Start+shared != st.At || r.TokenCount() != shared {
			return fmt.Errorf("%w: the state of block %s is not that after these %d tokens", prefix.ErrCollision, st.Key, st.At)
		}
		if r.Tensors() != len(tensors) {
			return fmt.Errorf("state record %s has %d tensors, group %d has %d", st.Key, r.Tensors(), st.Group, len(tensors))
		}
		for i, ti := range tensors {
			te := r.Tensor(i)
			if int(te.Tensor) != ti {
				return fmt.Errorf("plane %d of state record %s is of tensor %d, in group %d it is tensor %d", i, st.Key, te.Tensor, st.Group, ti)
			}
			if err := fn(r, i, d.Tensors[te.Tensor], te); err != nil {
				return err
			}
		}
		return nil
	})
}

// stateLength is the length of a state whose length varies: its plane is stored as it is.
func stateLength(te segments.TensorEntry) int64 { return int64(te.Length) }
