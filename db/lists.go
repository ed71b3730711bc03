package db

import (
	"context"
	"iter"
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
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

// listed is the list of what read gives when a loop begins.
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

// blocksBehind reads the records behind the last of a page, in its memory.
func (s *Store) blocksBehind(ctx context.Context, page []Block) ([]Block, error) {
	const pageLen = 512
	var key kv.Key
	group := uint8(0)
	if n := len(page); n > 0 {
		key, group = page[n-1].Key, uint8(page[n-1].Group)
	}
	e, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer s.leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	v := e.View()
	defer v.Release()
	page = page[:0]
	err = v.Blocks(key, group, func(x index.Entry) bool {
		page = append(page, blockOf(x))
		return len(page) < pageLen
	})
	return page, s.checkIndex(err)
}

// Block is one stored record as the index knows it.
type Block struct {
	Key      kv.Key
	Group    int
	Parent   kv.Key // of a first block: the chain's root, which is not stored
	Model    kv.Fingerprint
	Scope    kv.ScopeID
	First    int // position of its first token
	Tokens   int
	RowFirst int // rows that it holds, relative to First
	Rows     int
	Bytes    int64
	Segment  uint64
	Offset   int64
	Damaged  bool
	Partial  bool
	Hits     uint32 // matches that ended in it; those that went through it are counted where they ended
	Rank     uint64
	// Created is when the record was put, to the second: record and log say it, so it outlives kills, moves, and rebuilds of the index. A
	// block that takes the place of a shorter one, or a record that was completed, is as old as that put. Zero: nobody knows.
	Created time.Time
	// Used is when the block was last put, or a match ended in it, to the minute; it means something in group 0 only. Zero: not known, as
	// after a rebuild of the index, and of what a process put in its last seconds that was killed.
	Used time.Time
}

// timeOf is a time that is 0 where nobody knows it.
func timeOf(seconds int64) (t time.Time) {
	if seconds != 0 {
		t = time.Unix(seconds, 0).UTC()
	}
	return t
}

func blockOf(x index.Entry) Block {
	return Block{
		Key: x.Key, Group: int(x.Group), Parent: x.Parent, Model: x.Model, Scope: x.Scope, First: int(x.First),
		Tokens: int(x.Tokens), RowFirst: int(x.RowFirst), Rows: int(x.RowCount), Bytes: x.Loc.Length, Segment: x.Loc.Segment,
		Offset: x.Loc.Offset, Damaged: x.Flags&index.FlagDamaged != 0, Partial: x.Flags&index.FlagPartial != 0,
		Hits: x.Hits, Rank: x.Rank, Created: timeOf(x.Created), Used: timeOf(60 * int64(x.Used)),
	}
}

// Identity is what FORMAT says about a store.
type Identity struct {
	Version uint32
	UUID    string
}

// Identity returns the store's format version and id.
func (s *Store) Identity() (Identity, error) {
	e, err := s.enter(context.Background())
	if err != nil {
		return Identity{}, err
	}
	defer s.leave()
	return Identity{Version: e.Format.Version, UUID: e.Format.UUID.String()}, nil
}

// ScopeID returns the id that a scope of that name has in this store. Names are not stored, and ids differ from store to store.
func (s *Store) ScopeID(name string) (kv.ScopeID, error) {
	e, err := s.enter(context.Background())
	if err != nil {
		return kv.ScopeID{}, err
	}
	defer s.leave()
	return e.Hasher.Scope(name), nil
}
