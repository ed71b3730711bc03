package engine

import (
	"errors"
	"io/fs"

	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// reportDamage logs a record that failed a check, and flags it, so that matches stop before it and a put of the same
// prefix replaces it. Its children stay. It returns cause as users are to see it ([Engine.FoundBad]). What was destroyed meanwhile,
// cannot be read just now, with the whole folder perhaps, or is whole and another prompt's, is not flagged.
func (e *Engine) reportDamage(key kv.Key, group uint8, loc index.Loc, cause error) error {
	if cause = e.FoundBad(key, group, loc, cause); errors.Is(cause, segments.ErrDestroyed) {
		return cause
	}
	if errors.Is(cause, segments.ErrMemory) {
		return cause
	}
	if errors.Is(cause, prefix.ErrCollision) {
		e.Count.Collisions.Add(1)
		return cause
	}
	if read.Passing(cause) || errors.Is(cause, segments.ErrMissing) && e.away() {
		e.log.Warn("record cannot be read just now", "block", key.String(), "group", group, "error", cause)
		return cause
	}
	e.Count.Damaged.Add(1)
	e.log.Error("record is damaged; it will not be used", "block", key.String(), "group", group,
		"segment", loc.Segment, "offset", loc.Offset, "error", cause)
	if e.wal == nil {
		return cause
	}
	e.commitMu.Lock() // until the small state has it too: the head of a new log file must not miss it
	defer e.commitMu.Unlock()
	_, err := e.commitBoth(func(t *index.Txn) (oplog.Op, error) {
		cur, ok, err := t.Get(key, group)
		if err != nil || !ok || cur.Loc != loc || cur.Flags&index.FlagDamaged != 0 {
			return nil, err
		}
		op := oplog.Flag{Key: key, Group: group, Loc: loc, Flags: cur.Flags | index.FlagDamaged}
		return op, t.SetFlags(key, group, op.Flags)
	}, nil)
	if err != nil {
		e.log.Error("damage could not be recorded", "error", err)
	}
	return cause
}

// away reports whether the store's folder is not where it was: a medium that was taken out, perhaps. Its records are not missing.
func (e *Engine) away() bool {
	_, err := e.FS.Stat(e.Path(folder.FormatName))
	return errors.Is(err, fs.ErrNotExist)
}

// FoundBad returns the cause for which a record cannot be used as users are to see it: a record of zeros is one that was destroyed,
// unless the index has it still; then somebody else wrote the zeros.
func (e *Engine) FoundBad(key kv.Key, group uint8, loc index.Loc, cause error) error {
	if e.Overtaken() { // a writer destroys the header first: it tells damage from what that one is destroying
		if err := e.Segments.Read(loc, func(*segments.Record) error { return nil }); errors.Is(err, segments.ErrDestroyed) {
			return err
		}
		return cause
	}
	if !errors.Is(cause, segments.ErrDestroyed) {
		return cause
	}
	v := e.View()
	x, ok, err := v.Get(key, group)
	v.Release()
	if err == nil && (!ok || x.Loc != loc) {
		return cause
	}
	return damage.New(e.SegmentPath(loc.Segment), loc.Offset, "record header", "block "+key.String(), "zeros")
}

// forgetFlags drops the flagged blocks that are whole again or gone. The caller holds commitMu.
func (e *Engine) forgetFlags() {
	v := e.View()
	defer v.Release()
	e.Catalog.DropFlags(func(k kv.Key) bool {
		bad := false
		err := v.Groups(k, func(x index.Entry) bool {
			bad = bad || x.Flags&index.FlagDamaged != 0
			return !bad
		})
		return err == nil && !bad
	})
}
