package suspect

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/db/internal/tally"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Judge judges the records of one store. It is safe for concurrent use; its fields do not change.
type Judge struct {
	FS        vfs.FS
	Ledger    *commit.Ledger
	Count     *tally.Counters
	Overtaken func() bool // of a reader: a writer may have changed what it shows
}

// errElsewhere says that the index names a place where another record lies.
var errElsewhere = errors.New("another record lies there")

// Report logs a record that failed a check, and flags it: matches stop before it, and a put of the same prefix replaces it. Its children stay. It
// returns cause as users are to see it ([Judge.FoundBad]). It does not flag what was destroyed meanwhile, what cannot be read just now, with the
// whole folder perhaps, or what is whole and another prompt's.
func (j *Judge) Report(key kv.Key, group uint8, loc index.Loc, cause error) error {
	l := j.Ledger
	if cause = j.FoundBad(key, group, loc, cause); errors.Is(cause, segments.ErrDestroyed) {
		return cause
	}
	if errors.Is(cause, segments.ErrMemory) {
		return cause
	}
	if errors.Is(cause, prefix.ErrCollision) {
		j.Count.Collisions.Add(1)
		return cause
	}
	if read.Passing(cause) || errors.Is(cause, segments.ErrMissing) && j.away() {
		l.Logger.Warn("record cannot be read just now", "block", key.String(), "group", group, "error", cause)
		return cause
	}
	j.Count.Damaged.Add(1)
	l.Logger.Error("record is damaged; it will not be used", "block", key.String(), "group", group,
		"segment", loc.Segment, "offset", loc.Offset, "error", cause)
	if l.ReadOnly() {
		return cause
	}
	if err := j.flag(key, group, loc); err != nil {
		l.Logger.Error("damage could not be recorded", "error", err)
	}
	return cause
}

// flag has index and catalog remember that the record at loc is damaged.
func (j *Judge) flag(key kv.Key, group uint8, loc index.Loc) error {
	c, err := j.Ledger.Begin()
	if err != nil {
		return err
	}
	defer c.End()
	cur, ok, err := c.Index.Get(key, group)
	if err != nil {
		return j.Ledger.Damaged(err)
	}
	if !ok || cur.Loc != loc || cur.Flags&index.FlagDamaged != 0 {
		return nil
	}
	op := oplog.Flag{Key: key, Group: group, Loc: loc, Flags: cur.Flags | index.FlagDamaged}
	if err := c.Index.SetFlags(key, group, op.Flags); err != nil {
		return j.Ledger.Damaged(err)
	}
	_, err = c.Commit(op)
	return err
}

// away reports whether the store's folder is not where it was: a medium that was taken out, perhaps. Its records are not missing.
func (j *Judge) away() bool {
	_, err := j.FS.Stat(filepath.Join(j.Ledger.Dir, folder.FormatName))
	return errors.Is(err, fs.ErrNotExist)
}

// FoundBad returns the cause for which a record cannot be used as users are to see it: a record of zeros is one that was destroyed,
// unless the index has it still; then somebody else wrote the zeros.
func (j *Judge) FoundBad(key kv.Key, group uint8, loc index.Loc, cause error) error {
	l := j.Ledger
	if j.Overtaken() { // a writer destroys the header first: it tells damage from what that one is destroying
		if err := l.Segments.Read(loc, func(*segments.Record) error { return nil }); errors.Is(err, segments.ErrDestroyed) {
			return err
		}
		return cause
	}
	if !errors.Is(cause, segments.ErrDestroyed) {
		return cause
	}
	v := l.View()
	x, ok, err := v.Get(key, group)
	v.Release()
	if err == nil && (!ok || x.Loc != loc) {
		return cause
	}
	return damage.New(folder.SegmentPath(l.Dir, loc.Segment), loc.Offset, "record header", "block "+key.String(), "zeros")
}

// Whole reports whether the index has a record and its header can be read. One that is damaged is flagged. The caller holds no lock.
func (j *Judge) Whole(k kv.Key, group uint8) (bool, error) {
	l := j.Ledger
	lease := l.Segments.AcquireShort() // before the index is asked: what that names stays until then
	v := l.View()
	x, ok, err := v.Get(k, group)
	v.Release()
	var bad error
	if err == nil && ok {
		bad = l.Segments.Read(x.Loc, func(r *segments.Record) error {
			if r.Key() != k || r.Group() != group {
				return errElsewhere
			}
			return nil
		})
	}
	lease.Release()
	if bad != nil && !read.Passing(bad) { // what cannot be read just now is taken to be whole
		j.Report(k, group, x.Loc, bad)
		return false, nil
	}
	return ok, err
}

// ForgetFlags drops the flags of blocks that are whole again or gone. Nobody changes the catalog meanwhile.
func (j *Judge) ForgetFlags() {
	v := j.Ledger.View()
	defer v.Release()
	j.Ledger.Catalog.DropFlags(func(k kv.Key) bool {
		bad := false
		err := v.Groups(k, func(x index.Entry) bool {
			bad = bad || x.Flags&index.FlagDamaged != 0
			return !bad
		})
		return err == nil && !bad
	})
}

// Record reads a record of the index, whose bytes stay readable meanwhile. segments.ErrDestroyed if it does not lie at l any more.
func (j *Judge) Record(key kv.Key, group uint8, at index.Loc, read func(*segments.Record) error) error {
	l := j.Ledger
	lease := l.Segments.AcquireShort() // what is found stays readable
	defer lease.Release()
	v := l.View()
	x, ok, err := v.Get(key, group)
	v.Release()
	if err == nil && (!ok || x.Loc != at) {
		err = segments.ErrDestroyed
	}
	if err != nil {
		return err
	}
	if err := l.Segments.Read(at, read); err != nil {
		return j.FoundBad(key, group, at, err)
	}
	return nil
}
