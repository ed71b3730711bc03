package read

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/direct"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/segments"
)

// Source is the store that is read. It is safe for concurrent use; its fields do not change.
type Source struct {
	Segments *segments.Set
	Workers  *Workers
	Ring     *direct.Ring // for what is read around the page cache; nil: nothing is
	Again    *Again       // has what was read so in memory for the next time; nil: nobody does

	// Named reports whether a ref is set on a block.
	Named func(key kv.Key) bool

	fetched atomic.Pointer[fetched]

	// Cause returns why a record could not be used as users are to see it: reading alone cannot tell a record that was destroyed from one
	// that somebody else overwrote with zeros. Report does so too, and has the store remember what is damaged.
	Cause, Report func(key kv.Key, group uint8, loc index.Loc, err error) error
}

// identify compares all that a record says it is with what was looked for.
func identify(r *segments.Record, m *prefix.Model, key, parent kv.Key, scope kv.ScopeID, group, start int) error {
	switch {
	case r.Key() != key, int(r.Group()) != group:
		return fmt.Errorf("expected the record of block %s group %d, found %s group %d", key, group, r.Key(), r.Group())
	case r.Parent() != parent:
		return fmt.Errorf("%w: record %s goes on from %s, not %s", prefix.ErrCollision, key, r.Parent(), parent)
	case r.Model() != m.Fingerprint:
		return fmt.Errorf("record %s is of model %s, not %s", key, r.Model(), m.Fingerprint)
	case r.Scope() != scope:
		return fmt.Errorf("%w: record %s is of another scope", prefix.ErrCollision, key)
	case int(r.First()) != start:
		return fmt.Errorf("%w: record %s starts at position %d, not %d", prefix.ErrCollision, key, r.First(), start)
	}
	return nil
}

// identifyRows is identify of the record of a hit's group, whose tokens must be the prompt's up to position to.
func identifyRows(r *segments.Record, m *prefix.Model, p *kv.Prompt, h *prefix.Hit, group, to int) error {
	if err := identify(r, m, h.Key, h.Parent, h.Scope, group, h.Start); err != nil {
		return err
	}
	if shared := r.MatchTokens(p, h.Start); h.Start+shared < min(h.End, to) {
		return fmt.Errorf("%w: record %s holds other tokens from position %d on", prefix.ErrCollision, h.Key, h.Start+shared)
	}
	return nil
}

// tensorsOf returns the tensors of a record's planes, and refuses one whose planes are not of the group's, in order.
func tensorsOf(r *segments.Record, m *prefix.Model, group int) ([]int, error) {
	tensors := m.GroupTensors[group]
	if r.Tensors() != len(tensors) {
		return nil, damage.New(r.File(), r.Loc().Offset, "number of planes of a record", len(tensors), r.Tensors())
	}
	for i, ti := range tensors {
		if te := r.Tensor(i); int(te.Tensor) != ti {
			return nil, damage.New(r.File(), r.Loc().Offset, fmt.Sprintf("tensor of plane %d of a record", i), ti, te.Tensor)
		}
	}
	return tensors, nil
}

// PlaneOf is what a record's table says about a plane.
func PlaneOf(te segments.TensorEntry) quant.Plane {
	return quant.Plane{
		Codec: quant.Codec(te.Codec), Compression: quant.Compression(te.Compression),
		Rows: int(te.Rows), Exceptions: te.Exceptions, MaxError: te.MaxError,
	}
}

// Passing reports whether a read failed for a reason that passes: too many files are open, say. What is known to be damage is none.
func Passing(err error) bool { return vfs.Passing(err) && !errors.Is(err, damage.ErrCorrupt) }
