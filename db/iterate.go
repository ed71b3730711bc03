package db

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Models lists the models of the store, the newest version of each name before its older ones.
func (s *Store) Models() ([]ModelStats, error) {
	e, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer s.leave()
	v := e.view()
	defer v.Release()
	e.stateMu.RLock()
	defer e.stateMu.RUnlock()
	latest := e.state.latest()
	all := make([]*modelState, 0, len(e.state.models))
	for _, m := range e.state.models {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *modelState) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Stamp, a.Stamp))
	})
	out := make([]ModelStats, 0, len(all))
	for _, m := range all {
		if err := m.load(); err != nil {
			return nil, err
		}
		out = append(out, modelStats(m, latest[m.Name] == m, v.CountsOf(m.Fingerprint)))
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
		Offset: x.Loc.Offset, Damaged: x.Flags&index.FlagDamaged != 0, Tail: x.Flags&index.FlagTail != 0,
		Hits: x.Hits, Rank: x.Rank, Used: used,
	}
}

// Blocks lists every stored record, in order of key and group. Records that are put or removed meanwhile may be in the list
// or not; all others are in it once. The error is yielded last, if any. The loop body may call any method of the store.
func (s *Store) Blocks() iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		var page []Block
		for {
			var err error
			if page, err = s.blocksBehind(page); err != nil {
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
func (s *Store) blocksBehind(page []Block) (out []Block, err error) {
	last := slices.Clone(page[max(0, len(page)-1):]) // a try that fails may have written over it
	err = s.onIndex(context.Background(), func() (err error) {
		out, err = s.blocksBehindOnce(page)
		page = last
		return err
	})
	return out, err
}

func (s *Store) blocksBehindOnce(page []Block) ([]Block, error) {
	const pageLen = 512
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
	v := e.view()
	defer v.Release()
	err = v.Blocks(key, group, func(x index.Entry) bool {
		page = append(page, blockOf(x))
		return len(page) < pageLen
	})
	if isIndexDamage(err) {
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

// Planes reads the tensor table of a stored record. [ErrGone] if that was deleted or evicted since it was listed.
func (s *Store) Planes(b Block) (planes []Plane, err error) {
	e, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer s.leave()
	loc := segments.Loc{Segment: b.Segment, Offset: b.Offset, Length: b.Bytes}
	err = e.set.Read(loc, func(r *segments.Record) error {
		for i := range r.Tensors() {
			te := r.Tensor(i)
			p := planeOf(te)
			planes = append(planes, Plane{
				Tensor: int(te.Tensor), Codec: p.Codec.String(), Compression: p.Compression.String(), FirstRow: int(te.FirstRow),
				Rows: p.Rows, Exceptions: int(p.Exceptions), MaxError: p.MaxError, Bytes: int64(te.Length),
			})
		}
		return nil
	})
	if err != nil {
		err = e.foundBad(b.Key, uint8(b.Group), loc, err)
	}
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

// Segments lists the segment files with what is alive in each.
func (s *Store) Segments() ([]Segment, error) {
	e, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer s.leave()
	v := e.view()
	defer v.Release()
	var out []Segment
	for _, i := range e.set.Segments() {
		live := v.Segment(i.ID)
		x := Segment{
			ID: i.ID, Path: i.Path, Sealed: i.Sealed, Size: i.Size, Allocated: i.Allocated,
			Records: live.Records, LiveBytes: live.Bytes,
		}
		if d, err := e.set.Descriptor(i.ID); err == nil {
			x.Model = d.Fingerprint()
		}
		out = append(out, x)
	}
	return out, nil
}
