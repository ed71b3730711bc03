package db

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

func (s *Store) models() ([]ModelStats, error) {
	e, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer s.leave()
	v := e.View()
	defer v.Release()
	latest, all := e.Catalog.Latest(), e.Catalog.Models()
	slices.SortFunc(all, func(a, b *catalog.Model) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Stamp, a.Stamp))
	})
	out := make([]ModelStats, 0, len(all))
	for _, m := range all {
		out = append(out, modelStats(m, m.Load(), latest[m.Fingerprint], v.CountsOf(m.Fingerprint)))
	}
	return out, nil
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
	Tail     bool
	Hits     uint32 // matches that ended in it; those that went through it are counted where they ended
	Rank     uint64
	// Used is when the block was last put, or a match ended in it, to the minute; it means something in group 0 only. Zero: not known, as
	// after a rebuild of the index, and of what a process put in its last seconds that was killed.
	Used time.Time
}

func blockOf(x index.Entry) Block {
	var used time.Time
	if x.Used != 0 {
		used = time.Unix(60*int64(x.Used), 0).UTC()
	}
	return Block{
		Key: x.Key, Group: int(x.Group), Parent: x.Parent, Model: x.Model, Scope: x.Scope, First: int(x.First),
		Tokens: int(x.Tokens), RowFirst: int(x.RowFirst), Rows: int(x.RowCount), Bytes: x.Loc.Length, Segment: x.Loc.Segment,
		Offset: x.Loc.Offset, Damaged: x.Flags&index.FlagDamaged != 0, Tail: x.Flags&index.FlagPartial != 0,
		Hits: x.Hits, Rank: x.Rank, Used: used,
	}
}

// blocksBehind reads the records behind the last of a page, in its memory.
func (s *Store) blocksBehind(ctx context.Context, page []Block) (out []Block, err error) {
	last := slices.Clone(page[max(0, len(page)-1):]) // a try that fails may have written over it
	err = s.onIndex(ctx, func() (err error) {
		out, err = s.blocksBehindOnce(ctx, page)
		page = last
		return err
	})
	return out, err
}

func (s *Store) blocksBehindOnce(ctx context.Context, page []Block) ([]Block, error) {
	const pageLen = 512
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer s.leave()
	var key kv.Key
	group := uint8(0)
	if len(page) > 0 {
		last := page[len(page)-1]
		key, group = last.Key, uint8(last.Group)
	}
	page = page[:0]
	v := e.View()
	defer v.Release()
	err = v.Blocks(key, group, func(x index.Entry) bool {
		page = append(page, blockOf(x))
		return len(page) < pageLen
	})
	if engine.IsIndexDamage(err) {
		s.indexDamaged(err)
	}
	return page, err
}

// Plane is one stored plane of a record: the rows of one tensor.
type Plane struct {
	Tensor      int
	Codec       string
	Compression string
	FirstRow    int // relative to the block's first position
	Rows        int
	Exceptions  int
	MaxError    float32
	Bytes       int64
}

func (s *Store) planes(ctx context.Context, b Block) (planes []Plane, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer s.leave()
	loc := segments.Loc{Segment: b.Segment, Offset: b.Offset, Length: b.Bytes}
	err = e.Record(b.Key, uint8(b.Group), loc, func(r *segments.Record) error {
		for i := range r.Tensors() {
			te := r.Tensor(i)
			p := read.PlaneOf(te)
			planes = append(planes, Plane{
				Tensor: int(te.Tensor), Codec: p.Codec.String(), Compression: p.Compression.String(), FirstRow: int(te.FirstRow),
				Rows: p.Rows, Exceptions: int(p.Exceptions), MaxError: p.MaxError, Bytes: int64(te.Length),
			})
		}
		return nil
	})
	return planes, err
}

// Segment is one segment file.
type Segment struct {
	ID        uint64
	Path      string
	Model     kv.Fingerprint
	Sealed    bool
	Size      int64
	Allocated int64
	Records   int64 // live
	LiveBytes int64
}

func (s *Store) segments(ctx context.Context) ([]Segment, error) {
	e, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer s.leave()
	v := e.View()
	defer v.Release()
	var out []Segment
	for _, i := range e.Segments.Segments() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		live := v.Segment(i.ID)
		x := Segment{
			ID: i.ID, Path: i.Path, Sealed: i.Sealed, Size: i.Size, Allocated: i.Allocated,
			Records: live.Records, LiveBytes: live.Bytes,
		}
		if d, err := e.Segments.Descriptor(i.ID); err == nil {
			x.Model = d.Fingerprint()
		}
		out = append(out, x)
	}
	return out, nil
}
