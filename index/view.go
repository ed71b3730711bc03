package index

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
)

// View is one immutable version of the index. It answers as of the moment it was taken, whatever is written, checkpointed or
// compacted since. Safe for concurrent use. Until its Release, pages that it can see stay in the file: hold it briefly.
//
// Queries fail only with an error that wraps [ErrDamaged] (index.db must be rebuilt), or [ErrClosed].
type View struct {
	ix *Index
	layers
	counters
	err      error // the index was closed before the view was taken
	released atomic.Bool
}

// Release gives the view up. A second call does nothing; a query after it panics.
func (v *View) Release() {
	if v.ix != nil && !v.released.Swap(true) && v.base != nil {
		v.base.release()
	}
}

func (v *View) begin() (*cursor, error) {
	if v.released.Load() {
		panic("index: view used after its Release")
	}
	if v.err != nil {
		return nil, v.err
	}
	if v.base != nil {
		if err := v.base.file.failed(); err != nil {
			return nil, err
		}
	}
	return v.cursor(), nil
}

// badRow reports a row whose checksum fits and whose contents do not: written by a broken program.
func (l *layers) badRow(key []byte, what string) error {
	if l.base == nil {
		return fail(damage.New("", 0, what, "a valid row", key))
	}
	return l.base.file.damaged(damage.New(l.base.file.path, 0, what, "a valid row", key))
}

// Get returns the entry of a block for a group. It does not allocate.
func (v *View) Get(k kv.Key, group uint8) (Entry, bool, error) {
	var e Entry
	c, err := v.begin()
	if err != nil {
		return e, false, err
	}
	defer c.release()
	_, ok, err := c.entry(&e, k, group)
	return e, ok, err
}

// entry reads an entry, and returns its hashes, which are valid until the cursor's next move.
func (c *cursor) entry(e *Entry, k kv.Key, group uint8) (hashes []byte, ok bool, err error) {
	key := appendBlockKey(c.qbuf[:0], k, group)
	val, ok, err := c.get(key)
	if err != nil || !ok {
		return nil, false, err
	}
	if hashes, ok = decodeEntry(e, key, val); !ok {
		return nil, false, c.l.badRow(key, "block row")
	}
	return hashes, true, nil
}

// Groups calls fn for the entries of all groups of a block, in order of the group, until it returns false.
func (v *View) Groups(k kv.Key, fn func(Entry) bool) error {
	prefix := appendBlockKey(nil, k, 0)
	return v.entries(prefix[:len(prefix)-1], prefix, fn)
}

// Blocks calls fn for every entry behind (key, group), in that order, until it returns false. The zero key and group 0 start
// at the first.
func (v *View) Blocks(key kv.Key, group uint8, fn func(Entry) bool) error {
	return v.entries([]byte{tableBlock}, append(appendBlockKey(nil, key, group), 0), fn)
}

func (v *View) entries(prefix, from []byte, fn func(Entry) bool) error {
	return v.rows(prefix, from, func(key, val []byte) (bool, error) {
		var e Entry
		if _, ok := decodeEntry(&e, key, val); !ok {
			return false, v.badRow(key, "block row")
		}
		return fn(e), nil
	})
}

// rows is scan, refused where begin refuses.
func (v *View) rows(prefix, from []byte, fn func(key, val []byte) (bool, error)) error {
	c, err := v.begin()
	if err != nil {
		return err
	}
	c.release()
	return v.scan(prefix, from, fn)
}

// LeafPos is a place in the order of [View.Leaves].
type LeafPos struct {
	Rank uint64
	Key  kv.Key
}

// Leaves calls fn for the leaves of a model behind after (nil: from the start), in ascending order of rank and key, until
// it returns false. A leaf is an entry of group 0 without children of any scope.
func (v *View) Leaves(model kv.Fingerprint, after *LeafPos, fn func(key kv.Key, rank uint64) bool) error {
	prefix := appendLeafPrefix(nil, model)
	from := prefix
	if after != nil {
		from = append(appendLeafKey(nil, model, after.Rank, after.Key), 0)
	}
	return v.rows(prefix, from, func(key, _ []byte) (bool, error) {
		_, rank, k, ok := splitLeafKey(key)
		if !ok {
			return false, v.badRow(key, "leaf row")
		}
		return fn(k, rank), nil
	})
}

// ScopeRoots calls fn for the blocks of scope that carry [FlagScopeRoot], from the key from on, in order of their keys, until it returns false.
func (v *View) ScopeRoots(scope kv.ScopeID, from kv.Key, fn func(kv.Key) bool) error {
	return v.rows(appendScopePrefix(nil, scope), appendScopeKey(nil, scope, from), func(key, _ []byte) (bool, error) {
		_, k, ok := splitScopeKey(key)
		if !ok {
			return false, v.badRow(key, "scope row")
		}
		return fn(k), nil
	})
}

// Counts is how much there is in all.
func (v *View) Counts() Counts { return v.counters.total }

// CountsOf is how much there is of one model.
func (v *View) CountsOf(model kv.Fingerprint) Counts { return v.counters.model(model) }

// Segment is how much of one segment is alive.
func (v *View) Segment(id uint64) SegmentCounts { return v.counters.segment(id) }

// Models calls fn for each model that has entries, in order of the fingerprint, until it returns false.
func (v *View) Models(fn func(kv.Fingerprint, Counts) bool) {
	v.counters.rows.walk(func(key, val []byte) bool {
		if key[0] != tableModel {
			return false
		}
		counts, _ := decodeCounts(val)
		return fn(kv.Fingerprint(key[1:]), counts)
	})
}

// Segments calls fn for each segment that has live records, in order of the id, until it returns false.
func (v *View) Segments(fn func(id uint64, live SegmentCounts) bool) {
	rows := v.counters.rows
	for n := rows.ceil([]byte{tableSegment}, true); n != nil; n = rows.ceil(n.key, false) {
		counts, _ := decodeSegmentCounts(n.val)
		if !fn(binary.BigEndian.Uint64(n.key[1:]), counts) {
			return
		}
	}
}
