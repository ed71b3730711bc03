package segments

import (
	"context"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// Verify looks at every byte of a segment: its header, each record with its padding and the checksums of its planes, the
// space that holds nothing. live is asked about every record that is found; so a caller that ticks off what it is asked
// knows afterwards which of its records are not there, in a file that somebody cut, say. Dead records are not looked into. progress, which may be nil, is told how many bytes were covered since it was called last.
//
// report gets one error for each thing that is wrong. Those that wrap [ErrRemains] are not damage but bytes that no record
// covers: a write that a crash tore before it was acknowledged, or a destruction that a crash cut short.
//
// The error is that of ctx, or of a file that cannot be opened. Callbacks must not call Reclaim, SealAll or Sync. In a segment
// that this Set still appends to, the walk ends where a record is being written.
func (s *Set) Verify(ctx context.Context, id uint64, live func(Loc) bool, report func(*damage.Error), progress func(bytes int64)) error {
	if progress == nil {
		progress = func(int64) {}
	}
	g, err := s.segment(id)
	if err != nil {
		return err
	}
	g.walk()
	defer g.walked()
	im, err := g.open()
	if err != nil {
		return err
	}
	defer im.close()
	v := &verifier{im: im, live: live, report: report, progress: progress}
	v.header()
	if err := v.records(ctx); err != nil {
		return err
	}
	return ctx.Err()
}

// readAheadBytes is how far ahead of the walk the system is asked to read.
const readAheadBytes = 4 << 20

type verifier struct {
	im       *image
	live     func(Loc) bool
	report   func(*damage.Error)
	progress func(int64)
}

// guard runs f and reports a fault in it.
func (v *verifier) guard(off int64, what string, f func()) {
	if err := vfs.Guard(func() error { f(); return nil }); err != nil {
		v.report(damage.Wrap(v.im.g.path, off, what, err))
	}
}

func (v *verifier) header() {
	im := v.im
	if im.headErr != nil {
		v.report(im.headErr)
	} else {
		if _, err := im.g.descriptor(); err != nil {
			v.report(asDamage(err, im.g.path, segmentHeaderBytes, "model descriptor"))
		}
		v.guard(0, "segment header", func() {
			v.zero(segmentHeaderBytes+int64(len(im.head.descriptor)), min(im.start, int64(len(im.b))), "padding of the segment header")
			if h := im.b[:min(segmentHeaderBytes, len(im.b))]; len(h) == segmentHeaderBytes {
				if _, bad := decodeSegmentHeader(im.b, im.g.set.o.UUID, im.g.id); bad != nil {
					v.report(im.g.inFile(bad)) // it was sound when the file was opened
				}
			}
		})
	}
	v.progress(min(im.start, im.size))
}

// zero reports the first byte of [from, to) that is not zero.
func (v *verifier) zero(from, to int64, what string) bool {
	if from >= to {
		return true
	}
	i := v.im.nonZero(from, to)
	if i < 0 {
		return true
	}
	v.report(damage.New(v.im.g.path, i, what, "0", v.im.b[i]))
	return false
}

// records walks from the header to the end of the file.
func (v *verifier) records(ctx context.Context) error {
	im := v.im
	st := stretch{}
	ahead := im.start
	im.g.mu.Lock()
	m := im.g.m
	im.g.mu.Unlock()
	for off := im.start; off < im.limit; {
		if err := ctx.Err(); err != nil {
			return err
		}
		if m != nil && off+readAheadBytes/2 > ahead {
			ahead = max(ahead, off)
			m.WillNeed(ahead, readAheadBytes)
			ahead += readAheadBytes
		}
		next := min(off+im.alignment, im.limit)
		v.guard(off, "record", func() { v.unit(off, &next, &st) })
		v.progress(next - off)
		off = next
	}
	return nil
}

// unit checks what begins at off and sets next to where it ends, before it touches what may fault.
func (v *verifier) unit(off int64, next *int64, st *stretch) {
	im := v.im
	var r Record
	kind, e := im.probe(off, &r)
	switch kind {
	case isRecord:
		*next = r.loc.End()
		st.meet(kind, nil)
		if v.live(r.loc) {
			v.record(&r)
		}
	case isZero256:
		st.meet(kind, nil)
		if i := im.nonZero(off, *next); i >= 0 && !st.quiet {
			st.quiet = true
			v.report(remains(im.g.path, i))
		}
	default:
		if st.meet(kind, e) {
			v.report(e)
		}
	}
}

func remains(file string, off int64) *damage.Error {
	return &damage.Error{File: file, Offset: off, What: "bytes behind a zeroed header", Expected: "0", Found: "something else", Err: ErrRemains}
}

// record checks all bytes of a live record behind its head.
func (v *verifier) record(r *Record) {
	at := int64(r.h.head)
	for i := range r.Tensors() {
		e := r.Tensor(i)
		v.zero(r.loc.Offset+at, r.loc.Offset+int64(e.Offset), "padding before a plane")
		if err := r.VerifyPlane(i); err != nil {
			v.report(asDamage(err, r.file, r.loc.Offset, "plane"))
		}
		at = int64(e.Offset + e.Length)
	}
	v.zero(r.loc.Offset+at, r.loc.End(), "padding of a record")
}

// asDamage returns err if it is damage, and wraps it if it is not.
func asDamage(err error, file string, off int64, what string) *damage.Error {
	if e, ok := err.(*damage.Error); ok {
		return e
	}
	return damage.Wrap(file, off, what, err)
}
