package admin

import (
	"context"
	"errors"
	"io/fs"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/sessions"
)

// lost counts a record that is not copied.
func (w *damagedStore) lost(x index.Entry, why error) {
	w.files.lost(folder.SegmentPath(w.dir, x.Loc.Segment), x.Loc.Offset, x.Loc.Length, why)
}

// read lays a record out anew and completes its entry. why says what is damaged.
func (w *damagedStore) read(x *index.Entry) (b *segments.Builder, why, err error) {
	err = w.segments.Read(x.Loc, func(r *segments.Record) (err error) {
		if err := recovery.IsRecord(r, x); err != nil {
			return err
		}
		b, err = copyOf(r)
		x.Created = r.Created()
		if x.Group == 0 {
			p := r.Prompt()
			x.Hashes = w.hasher.AppendTokenHashes(nil, &p, 0, len(p.Tokens))
		}
		return err
	})
	switch {
	case errors.Is(err, segments.ErrDestroyed):
		return b, damage.Wrap(folder.SegmentPath(w.dir, x.Loc.Segment), x.Loc.Offset, "header of block "+x.Key.String(), err), nil
	case errors.Is(err, damage.ErrCorrupt):
		return b, err, nil
	}
	return b, nil, err
}

// copyOf lays a record out anew, with the checksums that it has: what is between its planes is not copied.
func copyOf(r *segments.Record) (*segments.Builder, error) {
	p := r.Prompt()
	b := segments.NewBuilder(segments.Meta{
		Key: r.Key(), Group: r.Group(), Parent: r.Parent(), Model: r.Model(), Scope: r.Scope(), First: r.First(), Seq: r.Seq(),
		Created: r.Created(), Tokens: p.Tokens, Spans: p.Spans,
	}, r.Tensors())
	b.Grow(r.Size())
	for i := range r.Tensors() {
		err := r.VerifyPlane(i)
		if err == nil {
			err = b.AddPlane(r.Tensor(i), func(dst []byte, _ *segments.TensorEntry) ([]byte, error) {
				return append(dst, r.Plane(i)...), nil
			})
		}
		if err != nil {
			b.Release()
			return nil, err
		}
	}
	return b, nil
}

// sessions reads every session and calls save with all of its frames, or with those before the first damage.
func (w *damagedStore) sessions(ctx context.Context, out *Repaired, save func(kv.ScopeID, []sessions.Frame) error) error {
	dir := w.path(folder.SessionsDir)
	names, err := w.disk.List(dir)
	if err != nil {
		return err
	}
	o := sessions.Options{FS: w.disk, Dir: dir, UUID: w.format.UUID}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		id, tmp, ok := sessions.Named(name)
		if !ok || tmp {
			continue
		}
		path := o.Path(id)
		got, err := sessions.Read(o, id)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it is being deleted
			continue
		case errors.Is(err, vfs.ErrVersion):
			return folder.OfAnotherRelease(err)
		case errors.Is(err, vfs.ErrForeign), errors.Is(err, vfs.ErrNotRegular):
			out.note("%v", err)
			continue
		case err != nil:
			bad := damage.Wrap(path, 0, "session file", err)
			errors.As(err, &bad)
			info, _ := w.disk.Stat(path)
			w.files.damaged(path, bad.Offset, bad).LostBytes = max(1, info.Size-bad.Offset)
		case got.Torn != "":
			out.note("%s: torn end of a session at offset %d: %s", path, got.End, got.Torn)
		}
		if got.Head.Scope != id { // not even the head is whole
			continue
		}
		if err := save(id, got.Frames); err != nil {
			return err
		}
	}
	return nil
}
