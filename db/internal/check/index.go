package check

import (
	"context"
	"errors"
	"io/fs"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// index checks index.db page by page and row by row.
func (v *verifier) index(ctx context.Context) error {
	e := v.e
	doubts := e.Recovered.Doubts
	if !e.Ledger.ReadOnly() {
		doubts = nil // it has been rebuilt since
	}
	for _, err := range doubts {
		var bad *damage.Error
		switch {
		case errors.Is(err, vfs.ErrForeign): // not to be opened for writing
			v.report(damage.Wrap(e.Path(folder.IndexName), 0, "index", err))
		case errors.As(err, &bad):
			v.report(bad)
			v.out.Files++
		default:
			v.note("index.db will be rebuilt: %v", err)
		}
	}
	if e.Ledger.ReadOnly() { // else they were left out, and that is done
		v.lost(e.Recovered.Absent)
		v.unproven(e.Recovered.Lost)
	}
	if len(doubts) > 0 {
		return nil
	}
	v.out.Files++
	return e.Index.Verify(ctx, v.report, v.read)
}

// entries checks that every record that the index names is where it says, is what it says, and has its prefix.
func (v *verifier) entries(ctx context.Context) (live map[loc.Loc]recovery.Named, err error) {
	e := v.e
	view := e.View()
	defer view.Release()
	live = map[loc.Loc]recovery.Named{}
	var checked int
	err = view.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		live[x.Loc] = recovery.Named{Key: x.Key, Tokens: int(x.Tokens)}
		v.entry(view, x)
		checked++
		return ctx.Err() == nil
	})
	v.out.Records = checked
	if engine.IsIndexDamage(err) {
		var bad *damage.Error
		if errors.As(err, &bad) {
			v.report(bad)
		}
		err = nil
	}
	if err == nil {
		err = ctx.Err()
	}
	return live, err
}

func (v *verifier) entry(view *index.View, x index.Entry) {
	need := x.Parent
	if x.Group > 0 {
		need = x.Key
	}
	if x.Group > 0 || x.First > 0 {
		if _, ok, err := view.Get(need, 0); err == nil && !ok {
			v.report(damage.New(v.e.Path(folder.IndexName), 0, "prefix of block "+x.Key.String(), "stored: "+need.String(), "not stored"))
		}
	}
	err := v.e.Segments.Read(x.Loc, func(r *segments.Record) error { return recovery.IsRecord(r, &x) })
	var bad *damage.Error
	switch {
	case err == nil:
	case errors.Is(err, segments.ErrDestroyed):
		v.report(damage.New(v.e.SegmentPath(x.Loc.Segment), x.Loc.Offset, "record header", "block "+x.Key.String(), "zeros"))
	case !errors.As(err, &bad):
		v.skip(x.Loc.Segment, err)
	case !errors.Is(err, damage.ErrCorrupt) || bad.What == "record":
		v.report(bad)
	default: // segments.Verify names the byte
	}
}

// bloom checks the filter's bytes, and that it denies nothing that is stored.
func (v *verifier) bloom(ctx context.Context) error {
	if v.foreignBloom {
		return nil
	}
	e := v.e
	e.Checkpoints.Lock()
	b, lsn, current, err := e.Filter.File()
	e.Checkpoints.Unlock()
	var bad *damage.Error
	switch {
	case errors.As(err, &bad):
		v.out.Files++
		v.report(bad)
		return nil
	case errors.Is(err, index.ErrMissing), errors.Is(err, fs.ErrNotExist):
		v.note("%s: missing; it will be rebuilt", e.Path(folder.BloomName))
		return nil
	case err != nil:
		v.note("%s: %v; it will be rebuilt", e.Path(folder.BloomName), err)
		return nil
	}
	v.out.Files++
	v.read(int64(b.Bits() / 8))
	if !current {
		v.note("%s: covers the log up to frame %d; it will be rebuilt", e.Path(folder.BloomName), lsn)
		return ctx.Err()
	}
	var view index.View
	filter := e.Search.Look(&view) // one that is built meanwhile does not know what is removed now
	defer view.Release()
	err = view.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
		if x.Group == 0 && filter != nil && !filter.MayContain(x.Key) {
			v.report(damage.New(e.Path(folder.BloomName), 0, "Bloom filter", "maybe for block "+x.Key.String(), "no"))
		}
		return ctx.Err() == nil
	})
	if engine.IsIndexDamage(err) {
		return nil // reported already
	}
	if err == nil {
		err = ctx.Err() // the walk may have ended early
	}
	return err
}
