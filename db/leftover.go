package db

import (
	"context"
	"errors"

	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// sealLeftover writes the footer that an earlier process did not get to, and the header if a power cut took it. What could not be
// read when the segment was swept, and can be now, is swept first.
func (e *engine) sealLeftover(ctx context.Context, u *recovery.Leftover) error {
	if u.From == 0 { // begun since the last checkpoint: its header may not have come to the disk
		empty := false // and without a header
		restored, err := e.set.RestoreHeader(u.ID, func() []segments.Loc {
			live := e.placesIn(u.ID)
			empty = len(live) == 0
			return live
		}, e.descriptor)
		if err != nil {
			return err
		}
		if empty && !e.set.Ours(u.ID) {
			return nil
		}
		if empty { // what is torn in it would look like damage for ever
			e.catalog.Unlink(true, u.ID) // what took the place of what lived in it must be safe first
			return nil
		}
		if restored { // without it nobody knew what lengths are multiples of: it is swept again, now or at the next try
			u.End = 0
		}
	}
	err := e.set.SealRecovered(u.ID, u.End)
	if !errors.Is(err, segments.ErrBehind) {
		return err
	}
	v := e.view()
	defer v.Release()
	again, unnamed, err := recovery.Sweep(ctx, e.set, v, u.ID, u.From, e.log)
	if err != nil {
		return err
	}
	e.catalog.BuryAt(unnamed...)
	*u = again
	return e.set.SealRecovered(u.ID, u.End)
}

// placesIn is recovery.Live as of now.
func (e *engine) placesIn(id uint64) []segments.Loc {
	v := e.view()
	defer v.Release()
	return recovery.Live(v, id)
}

// descriptor is that of a registered model, if it can be read.
func (e *engine) descriptor(fp kv.Fingerprint) (d kv.Descriptor, ok bool) {
	if m := e.catalog.Model(fp); m != nil && m.Load() == nil {
		return m.Desc, true
	}
	return d, false
}
