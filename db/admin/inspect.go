package admin

import (
	"context"
	"errors"
	"io/fs"
	"iter"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
	"github.com/dormousekv/dormouse/wal"
)

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

// Planes lists the planes of a stored record. It reads the record's header and table. [db.ErrGone] if that was deleted or evicted since it
// was listed.
func Planes(ctx context.Context, s *db.Store, b db.Block) iter.Seq2[Plane, error] {
	return listed(func() ([]Plane, error) { return planes(ctx, s, b) })
}

func planes(ctx context.Context, s *db.Store, b db.Block) (out []Plane, err error) {
	e, leave, err := s.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	at := segments.Loc{Segment: b.Segment, Offset: b.Offset, Length: b.Bytes}
	err = e.Judge.Record(b.Key, uint8(b.Group), at, func(r *segments.Record) error {
		for i := range r.Tensors() {
			te := r.Tensor(i)
			p := read.PlaneOf(te)
			out = append(out, Plane{
				Tensor: int(te.Tensor), Codec: p.Codec.String(), Compression: p.Compression.String(), FirstRow: int(te.FirstRow),
				Rows: p.Rows, Exceptions: int(p.Exceptions), MaxError: p.MaxError, Bytes: int64(te.Length),
			})
		}
		return nil
	})
	return out, err
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

// Segments lists the segment files with what is alive in each. It reads their headers.
func Segments(ctx context.Context, s *db.Store) iter.Seq2[Segment, error] {
	return listed(func() ([]Segment, error) { return segmentsOf(ctx, s) })
}

func segmentsOf(ctx context.Context, s *db.Store) (out []Segment, err error) {
	e, leave, err := s.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	v := e.View()
	defer v.Release()
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

// LogFile is one file of the write-ahead log.
type LogFile struct {
	ID                uint64
	FirstLSN, LastLSN uint64
	Bytes             int64 // allocated
	Torn              bool  // it ends in what a crash left
}

// Log lists the files of the log, which it reads. Nothing is appended meanwhile.
func Log(ctx context.Context, s *db.Store) iter.Seq2[LogFile, error] {
	return listed(func() ([]LogFile, error) { return logFiles(ctx, s) })
}

func logFiles(ctx context.Context, s *db.Store) (out []LogFile, err error) {
	e, leave, err := s.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	var rec wal.Recovered
	e.HoldLog(func() {
		for range 10 {
			rec, err = wal.Replay(e.ReadLogOptions(), func(wal.Frame) error { return ctx.Err() })
			if !errors.Is(err, fs.ErrNotExist) { // a process that writes removes what its checkpoint has
				break
			}
		}
	})
	if err != nil {
		return nil, err
	}
	writing := e.Overtaken() // then a frame at the end may be half written
	for _, f := range rec.Files {
		out = append(out, LogFile{ID: f.ID, FirstLSN: f.FirstLSN, LastLSN: f.LastLSN, Bytes: f.Bytes, Torn: f.Torn && !writing})
	}
	return out, nil
}

// Tombstone is a record that is out of the index and whose bytes are not yet known to be destroyed.
type Tombstone struct {
	Segment uint64
	Offset  int64
	Bytes   int64
}

// Tombstones lists what waits to be destroyed, in no order: until the log is synced, and until no match can see it.
func Tombstones(s *db.Store) iter.Seq2[Tombstone, error] {
	return listed(func() ([]Tombstone, error) { return tombstones(s) })
}

func tombstones(s *db.Store) (out []Tombstone, err error) {
	e, leave, err := s.Enter(context.Background())
	if err != nil {
		return nil, err
	}
	defer leave()
	for _, l := range e.Catalog.Tombstones() {
		out = append(out, Tombstone{Segment: l.Segment, Offset: l.Offset, Bytes: l.Length})
	}
	return out, nil
}

// IndexProblems says why index.db was not used at Open and had to be rebuilt; empty if it was.
func IndexProblems(s *db.Store) (why []error) {
	e, leave, err := s.Enter(context.Background())
	if err != nil { // of a closed store nothing is known
		return nil
	}
	defer leave()
	return e.Recovered.Doubts
}
