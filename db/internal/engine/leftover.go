package engine

import (
	"context"
	"errors"

	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// sealLeftover cuts a segment that an earlier process left, and writes its header if a power cut took it. What could not be
// read when the segment was swept, and can be now, is swept first.
func (e *Engine) sealLeftover(ctx context.Context, u *recovery.Leftover) error {
	if u.From == 0 { // begun since the last checkpoint: its header may not have come to the disk
		empty := false // and without a header
		restored, err := e.Segments.RestoreHeader(u.ID, func() []segments.Loc {
			live := e.placesIn(u.ID)
			empty = len(live) == 0
			return live
		}, e.descriptor)
		if err != nil {
			return err
		}
		if empty && !e.Segments.Ours(u.ID) {
			return nil
		}
		if empty { // what is torn in it would look like damage for ever
			e.Catalog.Unlink(true, u.ID) // what took the place of what lived in it must be safe first
			return nil
		}
		if restored { // without it nobody knew what lengths are multiples of: it is swept again, now or at the next try
			u.End = 0
		}
	}
	err := e.Segments.SealRecovered(u.ID, u.End)
	if !errors.Is(err, segments.ErrBehind) {
		return err
	}
	v := e.View()
	defer v.Release()
	again, unnamed, err := recovery.Sweep(ctx, e.Segments, v, u.ID, u.From, e.log)
	if err != nil {
		return err
	}
	e.Catalog.BuryAt(unnamed...)
	*u = again
	return e.Segments.SealRecovered(u.ID, u.End)
}

// placesIn is recovery.Live as of now.
func (e *Engine) placesIn(id uint64) []segments.Loc {
	v := e.View()
	defer v.Release()
	return recovery.Live(v, id)
}

// descriptor is that of a registered model, if it can be read.
func (e *Engine) descriptor(fp kv.Fingerprint) (d kv.Descriptor, ok bool) {
	if m := e.Catalog.Model(fp); m != nil && m.Load() == nil {
		return m.Desc, true
	}
	return d, false
}
