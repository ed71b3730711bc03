package read

import (
	"errors"
	"fmt"
	"sync"

	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/segments"
)

// Rows writes the rows [from, to) of the record of one group of a resolved hit into rows, after comparing it with the prompt.
func (s *Source) Rows(m *prefix.Model, p *kv.Prompt, h *prefix.Hit, group int, rows kv.Rows, from, to int) error {
	j := job{hit: h, group: group, from: from, to: to, step: 1}
	return readRows(s, h.Groups[group].Loc, decoder{model: m, prompt: p, job: &j, rows: rows, layers: anyLayer, planes: planes{step: 1}})
}

// decoder writes one job's rows.
type decoder struct {
	model   *prefix.Model
	prompt  *kv.Prompt
	job     *job
	rows    kv.Rows
	layers  layers
	planes  planes
	written int64 // bytes that are written beside these
}

// planes are every step-th of a record's planes, from the first one to end, or to the last one if that is 0.
type planes struct{ first, step, end int }

// pooledDecoder has the function that it hands to segments.Set.Read and the pieces that it slices, so that a restored block costs no
// allocation.
type pooledDecoder struct {
	decoder
	pieces []kv.Piece
	read   func(r *segments.Record) error
}

var decoders = sync.Pool{New: func() any {
	w := &pooledDecoder{pieces: make([]kv.Piece, 0, 4)}
	w.read = w.record
	return w
}}

// readRows reads the record at a place for d.
func readRows(s *Source, at index.Loc, d decoder) error {
	w := decoders.Get().(*pooledDecoder)
	w.decoder = d
	err := s.Segments.Read(at, w.read)
	w.free()
	return err
}

// readPart is readRows of the part of a record from offset from on. head are its first bytes.
func readPart(s *Source, at index.Loc, head, part []byte, from int64, d decoder) error {
	w := decoders.Get().(*pooledDecoder)
	w.decoder = d
	err := s.Segments.ReadPart(at, head, part, from, w.read)
	w.free()
	return err
}

func (w *pooledDecoder) free() {
	w.decoder = decoder{}
	clear(w.pieces[:cap(w.pieces)])
	decoders.Put(w)
}

// record writes the job's rows, after comparing everything that identifies the record.
func (w *pooledDecoder) record(r *segments.Record) error {
	m, job := w.model, w.job
	h, group, from, to := job.hit, job.group, job.from, job.to
	if err := identifyRows(r, m, w.prompt, h, group, to); err != nil {
		return err
	}
	tensors, err := tensorsOf(r, m, group)
	if err != nil {
		return err
	}
	end := len(tensors)
	if w.planes.end > 0 {
		end = min(end, w.planes.end)
	}
	for i := w.planes.first; i < end; i += w.planes.step {
		te, ti := r.Tensor(i), tensors[i]
		t := m.Desc.Tensors[ti]
		if !w.layers.has(t.Layer) {
			continue
		}
		first := h.Start + int(te.FirstRow)
		if err := hasRows(h, te, from, to); err != nil {
			return err
		}
		dst := w.rows[ti]
		a, b := max(from, dst.First), min(to, dst.End())
		if a >= b {
			continue
		}
		dst = dst.SliceIn(w.pieces[:0], t, a, b)
		w.pieces = dst.Pieces
		if err := decodeVerified(r, i, te, dst, t, a-first, w.written); err != nil {
			return err
		}
	}
	return nil
}

// hasRows refuses a plane that lacks rows of the positions [from, to).
func hasRows(h *prefix.Hit, te segments.TensorEntry, from, to int) error {
	first := h.Start + int(te.FirstRow)
	if first > from || first+int(te.Rows) < to {
		return fmt.Errorf("record %s has rows [%d, %d) of tensor %d, not [%d, %d)", h.Key, first, first+int(te.Rows), te.Tensor, from, to)
	}
	return nil
}

// decodeVerified writes rows of plane i from row from on, and verifies its checksum on the way.
func decodeVerified(r *segments.Record, i int, te segments.TensorEntry, dst kv.TensorRows, t kv.Tensor, from int, written int64) error {
	err := quant.DecodeVerified(dst, t, PlaneOf(te), r.Plane(i), from, te.CRC, quant.DecodeOptions{Bytes: written})
	if err == nil {
		return nil
	}
	var bad *damage.Error
	if errors.Is(err, quant.ErrChecksum) && errors.As(err, &bad) { // which does not know where the plane lies
		return r.PlaneDamage(i, bad.Expected, bad.Found)
	}
	return err
}
