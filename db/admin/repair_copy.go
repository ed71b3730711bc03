package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/recovery"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/sessions"
)

// copier copies what is whole of a damaged store into a new one.
type copier struct {
	from        *damagedStore
	to          *engine.Engine
	out         Repaired
	loaded      map[kv.Fingerprint]*catalog.Model
	saved       map[recovery.ID]bool // false: it was looked at, and is not copied
	done, total int64
}

func newCopier(from *damagedStore) *copier {
	return &copier{from: from, loaded: map[kv.Fingerprint]*catalog.Model{}, saved: map[recovery.ID]bool{}}
}

// copyTo makes a new store in dir and copies into it what is whole.
func (c *copier) copyTo(ctx context.Context, dir string) (err error) {
	f := c.from.format
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
	c.to, err = engine.Open(ctx, dir, engine.Options{
		FS: vfs.OS, Logger: slog.New(slog.DiscardHandler), Budget: 1 << 50, HighWater: 1, LowWater: 1, CheckpointInterval: -1,
		CheckpointBytes: 256 << 20, SegmentBytes: 64 << 20, BloomFPR: 0.001, Rank: rank,
	})
	if err != nil {
		return err
	}
	c.to.Start(func(error) {})
	c.to.Ledger.RaiseNumbers(c.from.found.Seq, c.from.found.Clock)
	for _, step := range []func(context.Context) error{c.models, c.records, c.refs, c.sessions, c.to.RebuildFilter} {
		if err = step(ctx); err != nil {
			break
		}
	}
	c.to.Halt()
	defer segments.GiveBack(0)
	return errors.Join(err, c.to.End(context.Background()))
}

// models registers every model, the newest version of each name last, with its notes. One whose descriptor is damaged is lost.
func (c *copier) models(context.Context) error {
	all := c.from.found.Catalog.Models()
	slices.SortFunc(all, func(a, b *catalog.Model) int {
		return cmp.Or(cmp.Compare(a.Stamp, b.Stamp), cmp.Compare(a.Fingerprint.String(), b.Fingerprint.String()))
	})
	for _, m := range all {
		switch err := m.Load(); {
		case errors.Is(err, vfs.ErrVersion): // without it, all that its log says behind it would be lost
			return folder.OfAnotherRelease(err)
		case c.from.files.bad(err):
			c.out.LostModels++
			continue
		case err != nil:
			return err
		}
		c.loaded[m.Fingerprint] = m
		if _, err := c.to.Ledger.LogState(*m.Model); err != nil {
			return err
		}
	}
	for _, n := range c.from.found.Catalog.Notes() {
		if c.loaded[n.Model] == nil {
			continue
		}
		if _, err := c.to.Ledger.LogState(n); err != nil {
			return err
		}
	}
	c.out.Models = len(c.loaded)
	return nil
}

// records copies the records in the order in which they lie on the disk, but each behind its prefix.
func (c *copier) records(ctx context.Context) error {
	order := slices.Collect(maps.Values(c.from.entries))
	slices.SortFunc(order, func(a, b index.Entry) int {
		return cmp.Or(cmp.Compare(a.Loc.Segment, b.Loc.Segment), cmp.Compare(a.Loc.Offset, b.Loc.Offset))
	})
	for _, x := range order {
		c.total += x.Loc.Length
	}
	for _, x := range order {
		if err := c.record(ctx, x); err != nil {
			return err
		}
	}
	c.leftOut()
	return nil
}

// record copies a record behind its prefix, if both are whole.
func (c *copier) record(ctx context.Context, x index.Entry) error {
	id := recovery.IDOf(&x)
	if _, again := c.saved[id]; again {
		return nil
	}
	c.saved[id] = false // damage may make a block its own prefix
	why, err := c.prefix(ctx, &x)
	if why == nil && err == nil {
		why, err = c.add(ctx, x)
	}
	if err != nil {
		return err
	}
	if c.saved[id] = why == nil; why != nil {
		c.from.lost(x, why)
	}
	c.done += x.Loc.Length
	c.from.progress("repair", c.done, c.total)
	return ctx.Err()
}

// prefix copies the blocks before a record. why says for what reason the record is of no use.
func (c *copier) prefix(ctx context.Context, x *index.Entry) (why, err error) {
	need, hangs := recovery.Needs(x)
	before, stored := c.from.entries[need]
	follows := before.Model == x.Model && (x.Group > 0 || before.First+uint32(before.Tokens) == x.First)
	if hangs && stored && follows {
		err = c.record(ctx, before)
	}
	if c.loaded[x.Model] == nil || hangs && !(follows && c.saved[need]) {
		why = errNeedsLost
	}
	return why, err
}

// add copies a record, unless its bytes are damaged, as why says.
func (c *copier) add(ctx context.Context, x index.Entry) (why, err error) {
	b, why, err := c.from.read(&x)
	defer b.Release()
	if why != nil || err != nil {
		return why, err
	}
	done := c.to.Appending()
	m := c.loaded[x.Model]
	if x.Loc, err = c.to.Segments.Append(&m.Desc, m.Fingerprint, b); err != nil {
		done()
		return nil, err
	}
	x.Flags &^= index.FlagDamaged
	x.Rank &= catalog.RankMask
	due := c.to.Grew(x.Loc.Length)
	err = c.publish(x)
	done()
	if err == nil && due {
		err = c.to.Space.Checkpoint(ctx)
	}
	if x.Group == 0 {
		c.out.Blocks++
	}
	c.out.Records++
	c.out.Bytes += x.Loc.Length
	return nil, err
}

// publish makes a record part of the new store.
func (c *copier) publish(x index.Entry) error {
	change, err := c.to.Ledger.Begin()
	if err != nil {
		return err
	}
	defer change.End()
	if err := change.Index.Put(x); err != nil {
		return err
	}
	_, err = change.Commit(oplog.Put{Records: []index.Entry{x}})
	return err
}

// leftOut counts the records that the recovery left out.
func (c *copier) leftOut() {
	found := &c.from.found
	for _, x := range slices.Concat(found.Absent, found.Lost, found.Left) {
		id := recovery.IDOf(&x)
		if _, known := c.saved[id]; known || c.loaded[x.Model] == nil && found.Retired(c.from.segments, x.Model) {
			continue
		}
		b, why, err := c.from.read(&x)
		b.Release()
		if errors.Is(why, segments.ErrDestroyed) && found.Log.Damaged() {
			continue // a frame that is lost may have removed it
		}
		c.saved[id] = false
		c.from.lost(x, cmp.Or(why, err, errNeedsLost))
	}
}

// refs sets every ref of a model that is copied. Its prefix may be gone: a ref survives that, as it survives an eviction.
func (c *copier) refs(context.Context) error {
	without := 0
	for _, ref := range c.from.found.Catalog.Refs() {
		if c.loaded[ref.Model] == nil {
			continue
		}
		if _, err := c.to.Ledger.LogState(ref); err != nil {
			return err
		}
		c.out.Refs++
		if !c.saved[recovery.ID{Key: ref.Block, Group: 0}] {
			without++
		} else if err := c.to.Ledger.Rerank(ref.Block); err != nil {
			return err
		}
	}
	if without > 0 {
		c.out.note("%s copied whose prefix is not stored: it was evicted, or is lost", damage.Count(without, "ref"))
	}
	return nil
}

// sessions copies every session: all of its frames, or those before the first damage.
func (c *copier) sessions(ctx context.Context) error {
	return c.from.sessions(ctx, &c.out, func(id kv.ScopeID, frames []sessions.Frame) error {
		c.out.Sessions++
		return c.to.Journals.Copy(id, frames)
	})
}
