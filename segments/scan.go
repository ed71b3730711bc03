package segments

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// Scan finds the records of a segment from offset from on (0: all) without any index, and calls fn with each; r is valid
// during fn. It probes every aligned offset that no record covers. Damage is handed to bad, which may be nil, and the
// walk goes on behind it; between two records at most one stretch of rubbish is reported. Reports that wrap [ErrRemains]
// are what a crash leaves behind. A record whose header is broken by a torn write cannot be told from one that rotted:
// who knows up to which offset records were acknowledged can.
//
// end is the offset behind the last record that was found. An error of fn, or of ctx, ends the walk and is returned. Planes
// are not verified; fn may, and a fault in fn counts as damage of that record. fn must not call Reclaim, SealAll or Sync.
func (s *Set) Scan(ctx context.Context, id uint64, from int64, fn func(loc Loc, r *Record) error, bad func(*damage.Error)) (end int64, err error) {
	if bad == nil {
		bad = func(*damage.Error) {}
	}
	g, err := s.files.segment(id)
	if err != nil {
		return 0, err
	}
	g.walk()
	defer g.walked()
	im, err := g.open()
	if err != nil {
		return 0, err
	}
	defer im.close()
	if im.headErr != nil && from < im.start {
		bad(im.headErr)
	}
	from = max(im.start, alignUp(max(from, 0), im.alignment))
	return im.scan(ctx, from, fn, func(e *damage.Error) {
		if errors.Is(e, ErrRemains) { // where a record may begin: it can be destroyed from there
			e.Offset -= e.Offset % im.alignment
		}
		bad(e)
	}, func(int64, int64) {})
}

// scan is the walk of Scan and Verify from an aligned offset on. passed is told of each stretch that was looked at.
func (im *image) scan(ctx context.Context, from int64, fn func(Loc, *Record) error, bad func(*damage.Error), passed func(from, to int64)) (int64, error) {
	end := from
	var r Record
	st := stretch{}
	for off := from; off < im.limit; {
		if err := ctx.Err(); err != nil {
			return end, err
		}
		next := min(off+im.alignment, im.limit)
		var e *damage.Error
		v := isDamaged // if there is a fault before anybody knows
		var fnErr error
		fault := vfs.Guard(func() error {
			switch v, e = im.probe(off, &r); v {
			case isRecord:
				next = r.loc.End()
				fnErr = fn(r.loc, &r)
			case isZero256:
				if i := im.nonZero(off, next); i >= 0 { // sectors of a page reach the disk one by one
					st.afterZeros = true
					v, e = isRubbish, remains(im.g.path, i)
				}
			}
			return nil
		})
		switch {
		case fnErr != nil:
			return end, fnErr
		case fault != nil:
			bad(damage.Wrap(im.g.path, off, "record", fault))
			st = stretch{quiet: v != isRecord} // of a record the end is known
		case st.meet(v, e):
			bad(e)
		case v == isRecord:
			end = next
		}
		passed(off, next)
		off = next
	}
	return end, ctx.Err()
}

func remains(file string, off int64) *damage.Error {
	return &damage.Error{File: file, Offset: off, What: "bytes behind a zeroed header", Expected: "0", Found: "something else", Err: ErrRemains}
}

// image is the mapped bytes of one segment with what is needed to walk over them.
type image struct {
	g         *segment
	b         []byte
	size      int64 // of the file now
	start     int64 // where the first record may begin
	limit     int64 // where records end: at what is still being written, or at the end of the file
	alignment int64
	head      segmentHeader
	headErr   *damage.Error
	own       bool
	holes     holes
}

// open pins g for a walk, until close.
func (g *segment) open() (*image, error) {
	b, err := g.pin()
	if err != nil {
		return nil, err
	}
	f, err := g.pinFile()
	if err != nil {
		g.unpin()
		return nil, err
	}
	info, err := g.files.o.FS.Stat(g.path)
	if err != nil {
		g.unpinFile()
		g.unpin()
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	im := &image{
		g: g, b: b[:min(int64(len(b)), info.Size)], size: info.Size,
		head: g.head, headErr: g.headErr, alignment: g.head.alignment, own: g.own,
		holes: holesOf(f),
	}
	im.setLimits(g.settledLocked())
	return im, nil
}

// close ends the walk.
func (im *image) close() {
	im.g.unpin()
	im.g.unpinFile() // the last, so that it closes the file
}

func (im *image) setLimits(settled int64) {
	im.start, im.limit = minAlignment, int64(len(im.b))
	if im.headErr == nil {
		im.start = im.head.end()
	}
	if im.own {
		im.limit = min(im.limit, settled)
	}
}

// probe says what begins at off. It reads the map: call it under vfs.Guard.
func (im *image) probe(off int64, r *Record) (verdict, *damage.Error) {
	if im.holes.next(off, im.limit) > off {
		return isZero256, nil
	}
	b := im.b[off:im.limit]
	h, v, e := decodeRecordHead(b, int64(len(b)), im.g.at(off))
	if v == isRecord && im.headErr == nil && h.model != im.head.model {
		v, e = isDamaged, damage.New("", off+48, "fingerprint of a record", im.head.model, h.model)
	}
	length := alignUp(h.total, im.alignment)
	if v == isRecord && length > int64(len(b)) {
		v, e = isDamaged, damage.New("", off+120, "length of a record", fmt.Sprintf("at most %d", len(b)), length)
	}
	if e != nil {
		e.File = im.g.path
	}
	if v == isRecord {
		loc := Loc{Segment: im.g.id, Offset: off, Length: length}
		*r = Record{h: h, head: b[:h.head:h.head], b: b[:h.total:h.total], loc: loc, file: im.g.path}
	}
	return v, e
}

// stretch follows a walk from one record to the next, and decides what of the bytes between them is worth a report.
type stretch struct {
	afterZeros bool // zeros were met since the last record
	quiet      bool // something was reported since the last record
}

// meet takes note of what lies at the next offset and reports whether e is to be reported.
func (st *stretch) meet(v verdict, e *damage.Error) bool {
	switch v {
	case isRecord:
		*st = stretch{}
		return false
	case isZero256:
		st.afterZeros = true
		return false
	case isRubbish, isElsewhere:
		// Behind a broken header there is the inside of a record: it was reported. Behind a zeroed one, too, but that
		// is how destroyed and torn records look. Where a record should begin, it is damage.
		if st.quiet {
			return false
		}
		st.quiet = true
		if st.afterZeros {
			e.What, e.Err = "bytes behind a zeroed header", ErrRemains
		}
		return true
	}
	st.quiet = true
	return true
}
