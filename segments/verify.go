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
	g, err := s.files.segment(id)
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
	v := &verifier{im: im, report: report}
	v.header()
	progress(min(im.start, im.size))
	g.mu.Lock()
	m := g.m
	g.mu.Unlock()
	ahead := im.start
	passed := func(from, to int64) {
		if m != nil && to+readAheadBytes/2 > ahead {
			ahead = max(ahead, to)
			m.WillNeed(ahead, readAheadBytes)
			ahead += readAheadBytes
		}
		progress(to - from)
	}
	passed(im.start, im.start)
	_, err = im.scan(ctx, im.start, func(loc Loc, r *Record) error {
		if live(loc) {
			v.record(r)
		}
		return nil
	}, report, passed)
	return err
}

// readAheadBytes is how far ahead of the walk the system is asked to read.
const readAheadBytes = 4 << 20

type verifier struct {
	im     *image
	report func(*damage.Error)
}

func (v *verifier) header() {
	im := v.im
	if im.headErr != nil {
		v.report(im.headErr)
		return
	}
	if _, err := im.g.descriptor(); err != nil {
		v.report(asDamage(err, im.g.path, segmentHeaderBytes, "model descriptor"))
	}
	if fault := vfs.Guard(func() error {
		v.zero(segmentHeaderBytes+int64(len(im.head.descriptor)), min(im.start, int64(len(im.b))), "padding of the segment header")
		if len(im.b) >= segmentHeaderBytes {
			if _, bad := decodeSegmentHeader(im.b, im.g.files.o.UUID, im.g.id); bad != nil {
				v.report(im.g.inFile(bad)) // it was sound when the file was opened
			}
		}
		return nil
	}); fault != nil {
		v.report(damage.Wrap(im.g.path, 0, "segment header", fault))
	}
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
