package state

import (
	"bytes"
	"fmt"
	"slices"
)

// Recurrent is the layout of the part of a blob that holds the state of a sequence's recurrent layers. In the blob of a hybrid it
// comes last, and LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY gives it alone.
type Recurrent struct {
	Layers  int // of the model, recurrent or not
	Tensors []RecurrentTensor
}

// RecurrentTensor is one tensor of the state: the convolution's or the recurrence's of a layer.
type RecurrentTensor struct {
	Type     int32 // ggml_type; what is in a row is not looked at
	RowBytes int
}

/*
The recurrent part, after the KV sections. A sequence has one cell, or, before its first token, none:

	+----------------------------------------------------+
	| cells u32 | cells x { pos i32 | 0 u32 }            |
	| 0 u32 | n_layer u32                                |
	| one for each tensor, to the end of the part:       |
	|   { type i32 | row_bytes u64 | cells x row }       |
	+----------------------------------------------------+

Nothing says how many tensors there are, nor names the sequence.
*/

// Body is a blob without its head: sections only.
func Body(blob []byte) ([]byte, error) {
	r := reader{b: blob}
	if m := r.u32("magic"); r.err == nil && m != magic {
		r.fail("magic", m, uint32(magic))
	}
	r.u32("sequence")
	return blob[r.at:], r.err
}

// LearnRecurrent finds out the layout of the recurrent part from one with a cell. It is accepted only if it is the same to the
// last byte when it is built again.
func LearnRecurrent(part []byte) (Recurrent, error) {
	f, pos, rows, err := parseRecurrent(part)
	if err != nil {
		return Recurrent{}, err
	}
	if len(rows) == 0 {
		return Recurrent{}, fmt.Errorf("%w: no recurrent tensors", ErrBlob)
	}
	if !bytes.Equal(f.build(pos, rows), part) {
		return Recurrent{}, fmt.Errorf("%w: the recurrent part differs when it is built again", ErrBlob)
	}
	return f, nil
}

// Parse checks a recurrent part of this layout, and returns the position of the last token that went into it.
func (f Recurrent) Parse(part []byte) (pos int, err error) {
	g, pos, _, err := parseRecurrent(part)
	if err != nil {
		return 0, err
	}
	if err := f.fits(g); err != nil {
		return 0, err
	}
	return pos, nil
}

// Equal reports whether the parts of f and g have the same layout.
func (f Recurrent) Equal(g Recurrent) bool {
	return f.Layers == g.Layers && slices.Equal(f.Tensors, g.Tensors)
}

func (f Recurrent) fits(found Recurrent) error {
	if !f.Equal(found) {
		return fmt.Errorf("%w: the recurrent part is %s, expected %s", ErrBlob, found, f)
	}
	return nil
}

// Size is the length of the part with a cell.
func (f Recurrent) Size() int {
	n := len(f.Empty()) + 8
	for _, t := range f.Tensors {
		n += t.RowBytes
	}
	return n
}

// Empty is the part of a sequence without a cell.
func (f Recurrent) Empty() []byte { return f.build(-1, nil) }

// build lays out the part with one cell, or without rows with none.
func (f Recurrent) build(pos int, rows [][]byte) []byte {
	n := 12 + 12*len(f.Tensors)
	if rows != nil {
		n += 8
	}
	for _, r := range rows {
		n += len(r)
	}
	w := writer{b: make([]byte, n)}
	if rows == nil {
		w.u32(0)
	} else {
		w.u32(1)
		w.u32(uint32(pos))
		w.u32(0)
	}
	w.u32(0)
	w.u32(uint32(f.Layers))
	for i, t := range f.Tensors {
		w.u32(uint32(t.Type))
		w.u64(uint64(t.RowBytes))
		if rows != nil {
			copy(w.skip(t.RowBytes), rows[i])
		}
	}
	return w.b
}

func parseRecurrent(part []byte) (f Recurrent, pos int, rows [][]byte, err error) {
	r := reader{b: part}
	f, pos, rows = r.recurrent()
	r.end("the recurrent part")
	if r.err == nil && rows == nil {
		r.err = fmt.Errorf("%w: offset 0: recurrent cells is 0, expected 1", ErrBlob)
	}
	return f, pos, rows, r.err
}

// recurrent reads a recurrent part; nothing but its end says how many tensors it has. Without a cell, pos is -1 and rows are nil.
func (r *reader) recurrent() (f Recurrent, pos int, rows [][]byte) {
	cells := r.count("recurrent cells", 1)
	pos = -1
	if cells == 1 {
		pos = int(int32(r.u32("recurrent pos")))
		if pos < 0 {
			r.fail("recurrent pos", pos, "at least 0")
		}
		if n := r.u32("sequences of a recurrent cell"); r.err == nil && n != 0 {
			r.fail("sequences of a recurrent cell", n, 0)
		}
		rows = [][]byte{}
	}
	if n := r.u32("s_trans"); r.err == nil && n != 0 {
		r.fail("s_trans", n, 0)
	}
	f.Layers = r.count("n_layer", maxLayers)
	for r.err == nil && r.left() > 0 && !r.atTrailer() {
		t := RecurrentTensor{Type: int32(r.u32("recurrent type"))}
		n := r.u64("recurrent row_bytes")
		if r.err == nil && n > maxRowBytes {
			r.fail("recurrent row_bytes", n, fmt.Sprintf("at most %d", maxRowBytes))
		}
		if cells == 1 {
			rows = append(rows, r.bytes("recurrent row", n))
		}
		if t.RowBytes = int(n); r.err == nil {
			f.Tensors = append(f.Tensors, t)
		}
		if len(f.Tensors) > 2*f.Layers {
			r.fail("recurrent tensors", len(f.Tensors), fmt.Sprintf("at most two for each of %d layers", f.Layers))
		}
	}
	return f, pos, rows
}

// String names the layout in a line: what ties a stored state to it.
func (f Recurrent) String() string {
	s := fmt.Sprintf("layers=%d", f.Layers)
	for i := 0; i < len(f.Tensors); {
		n := 1
		for i+n < len(f.Tensors) && f.Tensors[i+n] == f.Tensors[i] {
			n++
		}
		s += fmt.Sprintf(" %dx%d:%d", n, f.Tensors[i].Type, f.Tensors[i].RowBytes)
		i += n
	}
	return s
}
