package db

import (
	"context"
	"iter"
)

// All lists of a store are of one kind: an iterator that asks the store when a loop begins, over what is there at that moment (but for
// [Store.Blocks], which goes through the index page by page). The loop body may call any method of the store. If the list cannot be made,
// or not to its end, the last pair has the error, and a zero value.

// Collect makes a slice of a list. The error is the list's; with it comes what was listed before.
func Collect[T any](list iter.Seq2[T, error]) ([]T, error) {
	var out []T
	for x, err := range list {
		if err != nil {
			return out, err
		}
		out = append(out, x)
	}
	return out, nil
}

// listed is the list of what read returns.
func listed[T any](read func() ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		all, err := read()
		for _, x := range all {
			if !yield(x, nil) {
				return
			}
		}
		if err != nil {
			var none T
			yield(none, err)
		}
	}
}

// Models lists the models of the store by name, the newest version of each name before its older ones. One whose descriptor cannot be read
// says so itself ([ModelStats].Err).
func (s *Store) Models() iter.Seq2[ModelStats, error] { return listed(s.models) }

// Blocks lists every stored record, in order of key and group. Records that are put or removed meanwhile may be in the list
// or not; all others are in it once. The loop body may call any method of the store.
func (s *Store) Blocks(ctx context.Context) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		var page []Block
		for {
			var err error
			if page, err = s.blocksBehind(ctx, page); err != nil {
				yield(Block{}, err)
				return
			}
			if len(page) == 0 {
				return
			}
			for _, b := range page {
				if !yield(b, nil) {
					return
				}
			}
		}
	}
}

// Planes lists the planes of a stored record. It reads the record's header and table. [ErrGone] if that was deleted or evicted since it was
// listed.
func (s *Store) Planes(ctx context.Context, b Block) iter.Seq2[Plane, error] {
	return listed(func() ([]Plane, error) { return s.planes(ctx, b) })
}

// Segments lists the segment files with what is alive in each. It reads their headers.
func (s *Store) Segments(ctx context.Context) iter.Seq2[Segment, error] {
	return listed(func() ([]Segment, error) { return s.segments(ctx) })
}

// Log lists the files of the log, which it reads. Nothing is appended meanwhile.
func (s *Store) Log(ctx context.Context) iter.Seq2[LogFile, error] {
	return listed(func() ([]LogFile, error) { return s.log(ctx) })
}

// Tombstones lists what waits to be destroyed, in no order: until the log is synced, and until no match can see it.
func (s *Store) Tombstones() iter.Seq2[Tombstone, error] { return listed(s.tombstones) }

// Refs lists all refs by name.
func (s *Store) Refs() iter.Seq2[Ref, error] { return listed(s.refs) }

// Notes lists the names of the model's notes, sorted.
func (m *Model) Notes() iter.Seq2[string, error] { return listed(m.notes) }
