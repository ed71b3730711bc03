package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/db/internal/tally"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// copyTo makes a new store in dir and copies into it what is sound.
func (w *damagedStore) copyTo(ctx context.Context, dir string) (err error) {
	f := w.e.Format
	rand.Read(f.UUID[:])
	f.Compatible, f.ReadOnly = 0, 0
	if err := vfs.WriteAtomic(vfs.OS, dir, filepath.Join(dir, folder.FormatName), f.Encode(), folder.IsFormat); err != nil {
		return err
	}
	lock, err := folder.LockAlone(filepath.Join(dir, folder.LockName), false)
	if err != nil {
		return err
	}
	defer lock.Release()
	n, err := engine.Open(ctx, dir, engine.Options{
		FS: vfs.OS, Logger: slog.New(slog.DiscardHandler), Budget: 1 << 50, HighWater: 1, LowWater: 1, CheckpointInterval: -1,
		CheckpointBytes: 256 << 20, SegmentBytes: 64 << 20, BloomFPR: 0.001, Rank: rank,
	})
	if err != nil {
		return err
	}
	n.Start(func(error) {})
	n.Ledger.RaiseNumbers(w.e.Recovered.Found.Seq, w.e.Recovered.Found.Clock)
	c := &copier{w: w, n: n, loaded: map[kv.Fingerprint]*catalog.Model{}}
	if err = c.models(); err == nil {
		err = c.records(ctx)
	}
	if err == nil {
		err = c.refs()
	}
	if err == nil {
		err = c.sessions(ctx)
	}
	if err == nil && n.Filter.Stale() {
		err = n.RebuildFilter(ctx)
	}
	n.Halt()
	defer segments.GiveBack(0)
	return errors.Join(err, n.End(context.Background()))
}

// rank has all that is copied count as used when it was put, unless the index says more. The shift is that of db's policies.
func rank(l commit.Leaf) uint64 { return l.Clock << 8 }

// copyBytes bounds the records that one log frame publishes in the copy.
const copyBytes = 16 << 20

// copier copies what is sound of a damaged store into a new one.
type copier struct {
	w      *damagedStore
	n      *engine.Engine // of the new store
	loaded map[kv.Fingerprint]*catalog.Model

	batch       []index.Entry // appended and not yet published
	appended    func()        // lets checkpoints begin again
	batchBytes  int64
	done, total int64
}

// models registers every model, the newest version of each name last, with its notes. One whose descriptor is damaged, as the check says, is lost.
func (c *copier) models() error {
	all := c.w.e.Catalog.Models()
	slices.SortFunc(all, func(a, b *catalog.Model) int {
		return cmp.Or(cmp.Compare(a.Stamp, b.Stamp), cmp.Compare(a.Fingerprint.String(), b.Fingerprint.String()))
	})
	for _, m := range all {
		switch err := m.Load(); {
		case errors.Is(err, vfs.ErrVersion): // without it, all that its log says behind it would be lost
			return folder.OfAnotherRelease(err)
		case err != nil:
			continue
		}
		c.loaded[m.Fingerprint] = m
		if _, err := c.n.Ledger.LogState(*m.Model); err != nil {
			return err
		}
	}
	for _, n := range c.w.e.Catalog.Notes() {
		if c.loaded[n.Model] == nil {
			continue
		}
		if _, err := c.n.Ledger.LogState(n); err != nil {
			return err
		}
	}
	c.w.out.Models = len(c.loaded)
	return nil
}

// records copies the records in the order in which they lie on the disk, but each behind its prefix.
func (c *copier) records(ctx context.Context) error {
	order := slices.Collect(maps.Values(c.w.entries))
	slices.SortFunc(order, func(a, b index.Entry) int {
		return cmp.Or(cmp.Compare(a.Loc.Segment, b.Loc.Segment), cmp.Compare(a.Loc.Offset, b.Loc.Offset))
	})
	for _, x := range order {
		c.total += x.Loc.Length
	}
	for _, x := range order {
		if err := c.withPrefix(ctx, x); err != nil {
			return errors.Join(err, c.publish())
		}
	}
	return c.publish()
}

// withPrefix copies a record after what it needs.
func (c *copier) withPrefix(ctx context.Context, x index.Entry) error {
	w := c.w
	path := []index.Entry{x}
	for {
		top := path[len(path)-1]
		id, ok := recovery.Needs(&top)
		next, stored := w.entries[id]
		if !ok || !stored || c.decided(id) || next.Group > 0 || top.Group == 0 && next.First >= top.First {
			break
		}
		path = append(path, next)
	}
	for _, x := range slices.Backward(path) {
		if c.decided(recovery.IDOf(&x)) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.record(ctx, x); err != nil {
			return err
		}
		if c.done += x.Loc.Length; w.o.Progress != nil {
			w.o.Progress(tally.Progress{What: "repair", Done: c.done, Total: c.total})
		}
	}
	return nil
}

func (c *copier) decided(id recovery.ID) bool { return c.w.saved[id] || c.w.failed[id] != nil }

// record copies one record, if it is sound and has its prefix.
func (c *copier) record(ctx context.Context, x index.Entry) error {
	w, id := c.w, recovery.IDOf(&x)
	if why := w.cutOff(&x); why != nil {
		w.failed[id] = why
		return nil
	}
	m := c.loaded[x.Model]
	if m == nil {
		w.failed[id] = noDescriptor(x.Model)
		return nil
	}
	var b *segments.Builder
	err := w.e.Segments.Read(x.Loc, func(r *segments.Record) (err error) {
		if err := recovery.IsRecord(r, &x); err != nil {
			return err
		}
		b, err = copyOf(r)
		x.Created = r.Created()
		if x.Group == 0 {
			p := r.Prompt()
			x.Hashes = w.e.Hasher.AppendTokenHashes(nil, &p, 0, len(p.Tokens))
		}
		return err
	})
	defer b.Release()
	switch {
	case errors.Is(err, damage.ErrCorrupt), errors.Is(err, segments.ErrDestroyed):
		w.failed[id] = err
		return nil
	case err != nil:
		return err
	}
	if len(c.batch) == 0 {
		c.appended = c.n.Appending()
	}
	at, err := c.n.Segments.Append(&m.Desc, m.Fingerprint, b)
	if err != nil {
		if len(c.batch) == 0 {
			c.appended()
		}
		return err
	}
	due := c.n.Grew(at.Length)
	x.Loc = at
	x.Flags &^= index.FlagDamaged | index.FlagScopeRoot
	if parent, ok := w.entries[recovery.ID{Key: x.Parent, Group: 0}]; x.Group == 0 && !x.Scope.IsShared() && (x.First == 0 || ok && parent.Scope != x.Scope) {
		x.Flags |= index.FlagScopeRoot
	}
	x.Rank &= catalog.RankMask
	c.batch, c.batchBytes = append(c.batch, x), c.batchBytes+at.Length
	w.saved[id] = true
	if c.batchBytes < copyBytes && len(c.batch) < 4096 {
		return nil
	}
	if err := c.publish(); err != nil {
		return err
	}
	if due {
		return c.n.Space.Checkpoint(ctx)
	}
	return nil
}

// cutOff says why a record cannot be used whatever its bytes are.
func (w *damagedStore) cutOff(x *index.Entry) error {
	id, ok := recovery.Needs(x)
	if !ok {
		return nil
	}
	before := w.entries[id]
	fits := x.Group > 0 && before.Model == x.Model || x.Group == 0 && before.Model == x.Model && before.First+uint32(before.Tokens) == x.First
	if !w.saved[id] || !fits {
		return ErrPrefixLost
	}
	return nil
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

// publish makes the batch part of the new store.
func (c *copier) publish() error {
	if len(c.batch) == 0 {
		return nil
	}
	defer c.appended()
	batch := c.batch
	c.batch, c.batchBytes = nil, 0
	if err := c.commit(batch); err != nil {
		return err
	}
	for _, x := range batch {
		if x.Group == 0 {
			c.w.out.Blocks++
		}
		c.w.out.Records++
		c.w.out.Bytes += x.Loc.Length
	}
	return nil
}

// commit logs and publishes a batch.
func (c *copier) commit(batch []index.Entry) error {
	change, err := c.n.Ledger.Begin()
	if err != nil {
		return err
	}
	defer change.End()
	for _, x := range batch {
		if x.Group == 0 {
			c.n.Filter.Add(x.Key)
			if x.First == 0 {
				c.n.Filter.Add(c.n.Hasher.Opening(x.Parent, x.Scope, x.Hashes))
			}
		}
		if err := change.Index.Put(x); err != nil {
			return err
		}
	}
	_, err = change.Commit(oplog.Put{Records: batch})
	return err
}

// refs sets the refs whose prefix was saved, and those whose prefix was evicted before: refs survive that.
func (c *copier) refs() error {
	w := c.w
	all := w.allKnown()
	for _, ref := range w.e.Catalog.Refs() {
		id := recovery.ID{Key: ref.Block, Group: 0}
		x := w.entries[id]
		saved := w.saved[id] && x.Model == ref.Model && ref.Tokens > int(x.First) && ref.Tokens <= int(x.First)+int(x.Tokens)
		if !saved && (c.loaded[ref.Model] == nil || !all || w.known(id)) {
			w.out.LostRefs = append(w.out.LostRefs, LostRef{refOf(ref), fmt.Errorf("block %s: %w", ref.Block, ErrPrefixLost)})
			continue
		}
		if _, err := c.n.Ledger.LogState(ref); err != nil {
			return err
		}
		if saved {
			if err := c.n.Ledger.Rerank(ref.Block); err != nil {
				return err
			}
		} else {
			w.out.Notes = append(w.out.Notes, fmt.Sprintf("ref %q: its prefix had been evicted; the ref is saved", ref.Name))
		}
		w.out.Refs++
	}
	return nil
}

// allKnown reports whether index and log, or whole segments, say of every block that there was that it was there.
func (w *damagedStore) allKnown() bool {
	r := w.e.Recovered.Found
	damaged := len(w.fs.damage)+len(w.found.Damage)+len(r.Log.Damage)+len(r.Damage) > 0
	return len(w.unknown()) == 0 && !(r.Rebuilt && damaged)
}

// known reports whether anything says that there was such a block.
func (w *damagedStore) known(id recovery.ID) bool {
	is := func(x index.Entry) bool { return recovery.IDOf(&x) == id }
	_, ok := w.entries[id]
	return ok || slices.ContainsFunc(w.e.Recovered.Found.Absent, is) || slices.ContainsFunc(w.e.Recovered.Found.Left, is)
}
