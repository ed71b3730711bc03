package index

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/dormousekv/dormouse/internal/damage"
)

// Open opens an existing index. It returns [ErrMissing], [ErrVersion] or [ErrDamaged], after which the caller makes a new one with
// [Create] and fills it; [ErrForeign], which Create returns too; other errors are the system's.
func Open(o Options) (*Index, error) {
	o = o.withDefaults()
	if !o.ReadOnly {
		if err := checkTemporary(o, o.Path+".tmp"); err != nil {
			return nil, err
		}
	}
	if _, err := Whose(o); errors.Is(err, ErrForeign) { // before bbolt opens it: some systems grow it by that
		return nil, err
	}
	base, err := openSnapshot(o, o.Path)
	if err != nil {
		return nil, err
	}
	ix := &Index{o: o}
	ix.rows.base = base
	if err := ix.load(); err != nil {
		base.release()
		return nil, err
	}
	return ix, nil
}

// Create makes an empty index that says a of itself, and opens it: what its caller knows from the file that it replaces must outlast a
// process that ends before the first checkpoint. A file that is there is replaced, atomically: it may be damaged, in use by an index that
// was not closed, or locked by one that could not be. One that proves to be somebody else's is not: [ErrForeign].
func Create(o Options, a Applied) (*Index, error) {
	o = o.withDefaults()
	if o.ReadOnly {
		return nil, ErrReadOnly
	}
	if _, err := Whose(o); errors.Is(err, ErrForeign) {
		return nil, err
	}
	tmp := o.Path + ".tmp"
	if err := writeFile(o, tmp, (&job{uuid: o.UUID, applied: a}).rows); err != nil {
		return nil, err
	}
	if err := o.FS.Rename(tmp, o.Path); err != nil {
		o.FS.Remove(tmp)
		return nil, err
	}
	if err := o.FS.SyncDir(filepath.Dir(o.Path)); err != nil {
		return nil, err
	}
	return Open(o)
}

// load reads what is held in memory whole: the store row, the caller's state, the counts.
func (ix *Index) load() error {
	file := ix.rows.base.file
	c := ix.rows.cursor()
	defer c.release()
	val, ok, err := c.get(storeKey)
	if err != nil || !ok {
		return err // the snapshot has seen to it that there is such a row
	}
	s, err := decodeStore(file.path, val)
	if err != nil {
		return err
	}
	if s.UUID != ix.o.UUID {
		return fmt.Errorf("%s: %w: it belongs to store %s, this one is %s", file.path, ErrForeign, s.UUID, ix.o.UUID)
	}
	ix.applied = s.Applied
	ix.applied.Extra = make([]byte, 0, min(s.ExtraBytes, 1<<20))
	extra := []byte{tableExtra}
	if err := ix.rows.scan(extra, extra, func(key, val []byte) (bool, error) {
		if want := appendExtraKey(nil, uint32(len(ix.applied.Extra)/extraChunkBytes)); !bytes.Equal(key, want) {
			return false, ix.rows.badRow(key, "row of the caller's state")
		}
		ix.applied.Extra = append(ix.applied.Extra, val...)
		return true, nil
	}); err != nil {
		return err
	}
	if n := len(ix.applied.Extra); n != int(s.ExtraBytes) {
		return file.damaged(damage.New(file.path, 0, "caller's state", fmt.Sprintf("%d bytes", s.ExtraBytes), n))
	}

	// Models and segments each add up to the totals.
	var models Counts
	var segments SegmentCounts
	for table := byte(tableModel); table <= tableSegment; table++ {
		if err := ix.rows.scan([]byte{table}, []byte{table}, func(key, val []byte) (bool, error) {
			ok := false
			if table == tableModel {
				var c Counts
				c, ok = decodeCounts(val)
				ok = ok && len(key) == modelKeyBytes
				models = Counts{models.Blocks + c.Blocks, models.Records + c.Records, models.Bytes + c.Bytes}
			} else {
				var c SegmentCounts
				c, ok = decodeSegmentCounts(val)
				ok = ok && len(key) == segKeyBytes
				segments = SegmentCounts{segments.Records + c.Records, segments.Bytes + c.Bytes}
			}
			if !ok {
				return false, ix.rows.badRow(key, "row of counts")
			}
			ix.counts.rows = ix.counts.rows.set(bytes.Clone(key), bytes.Clone(val), ix.edits)
			return true, nil
		}); err != nil {
			return err
		}
	}
	ix.counts.total = s.Totals
	if models != s.Totals || segments != (SegmentCounts{s.Totals.Records, s.Totals.Bytes}) {
		return file.damaged(damage.New(file.path, 0, "counts", s.Totals, fmt.Sprintf("models %v, segments %v", models, segments)))
	}
	ix.persisted = ix.counts
	return nil
}
