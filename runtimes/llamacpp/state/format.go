package state

import (
	"fmt"
	"slices"
)

// magic is the first field of what llama_state_seq_get_data writes.
const magic = 0xaf143cd8

const prefixBytes = 8 // magic and sequence id

// Bounds of what llama.cpp can make. They limit what is looped over; memory is bounded by the blob's own size.
const (
	maxStreams  = 1024
	maxLayers   = 1 << 12
	maxSections = 2
	maxRowBytes = 1 << 30
)

// Format is what all blobs of one context have in common: everything but the cells and their contents.
type Format struct {
	ExtBytes    int  // bytes after a cell's position and count; not zero with M-RoPE
	HasRotation bool // the blob says how the cache is rotated: llama.cpp from 0.6.0 on
	Sections    []SectionFormat
}

// SectionFormat is one KV cache of the context. Sliding-window models have two: the full-attention layers, then the
// window layers.
type SectionFormat struct {
	Streams    int  // 1, or one for each sequence when sequences do not share a buffer
	Transposed bool // V is channel-major: the context runs without flash attention
	Rotation   Rotation
	Layers     []LayerFormat
}

// Rotation is the width of the Hadamard matrices by which a section's K and V are multiplied before they are stored; 0: by
// none, or, without Format.HasRotation, not said.
type Rotation struct {
	K, V int
}

// LayerFormat is the row shape of a layer. V's RowBytes is zero in caches that have no V (MLA).
type LayerFormat struct {
	K, V TensorFormat
}

// TensorFormat is the shape of one token's row.
type TensorFormat struct {
	Type      int32 // ggml_type
	RowBytes  int
	ElemBytes int // size of an element where V is channel-major, else 0
}

// Equal reports whether blobs of f and g have the same layout.
func (f Format) Equal(g Format) bool {
	return f.ExtBytes == g.ExtBytes && f.HasRotation == g.HasRotation && slices.EqualFunc(f.Sections, g.Sections, SectionFormat.equal)
}

func (s SectionFormat) equal(t SectionFormat) bool {
	return s.Streams == t.Streams && s.Transposed == t.Transposed && s.Rotation == t.Rotation && slices.Equal(s.Layers, t.Layers)
}

// HasV reports whether the layers have a V.
func (f Format) HasV() bool {
	for _, s := range f.Sections {
		for _, l := range s.Layers {
			return l.V.RowBytes > 0
		}
	}
	return true
}

// Tail is the format of a blob that was fetched without the first section (LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY).
func (f Format) Tail() Format {
	f.Sections = f.Sections[1:]
	return f
}

// Cells are the cells of a section, in the order in which they lie in the cache.
type Cells struct {
	Stream int     // which stream holds them
	Pos    []int32 // a cell's position; no two are equal
	Ext    []byte  // Format.ExtBytes for each
}

// Section is one KV cache's part of a blob. Its memory is the blob's. Not safe for concurrent use.
type Section struct {
	Cells
	format SectionFormat
	k, v   [][]byte // a layer's cells, each: k is row-major, v as format.Transposed says
	order  []run    // set by the first call of Rows
}

// run is neighboring cells that hold consecutive positions.
type run struct{ cell, count int }

// State is a blob, taken apart. Its memory is the blob's.
type State struct {
	Sequence int32
	Sections []Section
}

/*
A blob, all integers little-endian, nothing padded:

	+-----------------+-----------------+----------------------+
	| magic       u32 | sequence    i32 | section, section, …  |
	+-----------------+-----------------+----------------------+

	section
	+-----------------+------------------------------------------------------------+
	| n_stream    u32 | n_stream times: cells u32, and where that is not zero:     |
	+-----------------+------------------------------------------------------------+
	| cells x { pos i32 | 1 u32 | ext, Format.ExtBytes | sequence i32 }            |
	| v_trans u32 | n_layer u32 [ | n_rot_k u32 | n_rot_v u32 ]                      |
	| n_layer x { k_type i32 | row_bytes u64 | cells x row }                       |
	| v_trans 0, n_layer x { v_type i32 | row_bytes u64 | cells x row }            |
	| v_trans 1, n_layer x { v_type i32 | elem_bytes u32 | width u32 |             |
	|                        width x cells x elem }                                |
	+------------------------------------------------------------------------------+

The rotation is there where Format.HasRotation, the V part where the cache has a V. One stream at most has cells of a given sequence. The layers of a
section without cells are not written, so only a blob with cells tells the format.
*/

// unsaid is what a blob does not say of its own layout.
type unsaid struct {
	extBytes          int
	hasRotation, hasV bool
	recurrent         bool // of a file: the sections are not all
}

// parse takes a blob apart, with the layers of each section as found.
func parse(blob []byte, sections int, u unsaid) (*State, error) {
	r := reader{b: blob}
	s := r.blob(sections, u)
	r.end("blob")
	if r.err != nil {
		return nil, r.err
	}
	return s, nil
}

// blob reads a blob to the end of its sections.
func (r *reader) blob(sections int, u unsaid) *State {
	if m := r.u32("magic"); r.err == nil && m != magic {
		r.fail("magic", m, uint32(magic))
	}
	s := &State{Sequence: int32(r.u32("sequence"))}
	r.sequenceOf(s.Sequence)
	for range sections {
		s.Sections = append(s.Sections, r.section(u))
	}
	return s
}

func (r *reader) section(u unsaid) Section {
	s := Section{}
	s.format.Streams = r.count("n_stream", maxStreams)
	seen := false
	for stream := range s.format.Streams {
		cells := r.count("cells", r.left()/12)
		if r.err != nil {
			return s
		}
		if cells == 0 {
			continue
		}
		if seen {
			r.fail("streams with cells", 2, 1)
			return s
		}
		seen = true
		s.Stream = stream
		r.cells(&s, cells, u.extBytes)
		r.layers(&s, cells, u)
	}
	return s
}

func (r *reader) cells(s *Section, cells, extBytes int) {
	if r.left()/(12+extBytes) < cells {
		r.fail("cells", cells, r.left()/(12+extBytes))
		return
	}
	s.Pos = make([]int32, cells)
	for i := range s.Pos {
		s.Pos[i] = int32(r.u32("pos"))
		if s.Pos[i] < 0 {
			r.fail("pos", s.Pos[i], "at least 0")
		}
		if n := r.u32("sequences of a cell"); r.err == nil && n != 1 {
			r.fail("sequences of a cell", n, 1)
		}
		s.Ext = append(s.Ext, r.bytes("ext", uint64(extBytes))...)
		r.sequenceOf(int32(r.u32("sequence of a cell")))
		if r.err != nil {
			return
		}
	}
	sorted := slices.Clone(s.Pos)
	slices.Sort(sorted)
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			r.fail("pos that is twice there", sorted[i], "once")
			return
		}
	}
}

func (r *reader) layers(s *Section, cells int, u unsaid) {
	s.format.Transposed = r.count("v_trans", 1) == 1
	layers := r.count("n_layer", min(maxLayers, r.left()/12))
	if u.hasRotation {
		s.format.Rotation = Rotation{r.rotation("n_rot_k"), r.rotation("n_rot_v")}
	}
	for range layers {
		t, rows := r.rowMajor("k", cells)
		if r.err != nil {
			return
		}
		s.format.Layers = append(s.format.Layers, LayerFormat{K: t})
		s.k = append(s.k, rows)
	}
	if !u.hasV {
		return
	}
	for i := range layers {
		var t TensorFormat
		var rows []byte
		if s.format.Transposed {
			t, rows = r.channelMajor(cells)
		} else {
			t, rows = r.rowMajor("v", cells)
		}
		if r.err != nil {
			return
		}
		s.format.Layers[i].V = t
		s.v = append(s.v, rows)
	}
}

// rotation reads the width of a Hadamard matrix: llama.cpp doubles 64 as often as it fits into a head.
func (r *reader) rotation(name string) int {
	n := r.count(name, maxRowBytes)
	if n != 0 && (n < 64 || n&(n-1) != 0) {
		r.fail(name, n, "0, or a power of two from 64 on")
	}
	return n
}

func (r *reader) rowMajor(name string, cells int) (TensorFormat, []byte) {
	t := TensorFormat{Type: int32(r.u32(name + "_type"))}
	n := r.u64(name + " row_bytes")
	if r.err == nil && (n == 0 || n > maxRowBytes) {
		r.fail(name+" row_bytes", n, fmt.Sprintf("1 to %d", maxRowBytes))
		return t, nil
	}
	t.RowBytes = int(n)
	return t, r.bytes(name+" rows", n*uint64(cells))
}

func (r *reader) channelMajor(cells int) (TensorFormat, []byte) {
	t := TensorFormat{Type: int32(r.u32("v_type"))}
	elem := uint64(r.u32("v elem_bytes"))
	width := uint64(r.u32("v width"))
	if r.err == nil && (elem == 0 || elem > 64 || width == 0 || elem*width > maxRowBytes) {
		r.fail("v elem_bytes x width", fmt.Sprintf("%d x %d", elem, width), fmt.Sprintf("a row of 1 to %d bytes", maxRowBytes))
		return t, nil
	}
	t.ElemBytes = int(elem)
	t.RowBytes = int(elem * width)
	return t, r.bytes("v rows", elem*width*uint64(cells))
}

// Size is the length of a blob with these cells, one entry a section.
func (f Format) Size(cells []Cells) int {
	return prefixBytes + f.bodySize(cells)
}

// bodySize is the length of the sections.
func (f Format) bodySize(cells []Cells) int {
	n := 0
	for i, s := range f.Sections {
		n += 4 + 4*s.Streams
		if c := len(cells[i].Pos); c > 0 {
			n += c*(12+f.ExtBytes) + 8
			if f.HasRotation {
				n += 8
			}
			for _, l := range s.Layers {
				n += 12 + c*l.K.RowBytes
				if l.V.RowBytes > 0 {
					n += 12 + c*l.V.RowBytes
				}
			}
		}
	}
	return n
}

// Build lays out a blob with these cells, one entry a section, in buf if that is large enough, else in new memory. All is
// written but the rows, which are whatever the memory held: they are written through [Section.Rows]. A section without
// cells may have a nil Pos. cells that do not fit the format are the caller's mistake and panic.
func (f Format) Build(buf []byte, sequence int32, cells []Cells) (*State, []byte) {
	f.mustHold(cells)
	n := f.Size(cells)
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	w := writer{b: buf[:n]}
	return w.blob(f, sequence, cells), w.b
}

func (f Format) mustHold(cells []Cells) {
	if len(cells) != len(f.Sections) {
		panic(fmt.Sprintf("state: cells for %d sections of %d", len(cells), len(f.Sections)))
	}
}

func (w *writer) blob(f Format, sequence int32, cells []Cells) *State {
	w.u32(magic)
	w.u32(uint32(sequence))
	return w.sections(f, sequence, cells)
}

func (w *writer) sections(f Format, sequence int32, cells []Cells) *State {
	out := &State{Sequence: sequence}
	for i, sf := range f.Sections {
		c := cells[i]
		s := Section{Cells: c, format: sf}
		if len(c.Ext) != len(c.Pos)*f.ExtBytes || c.Stream < 0 || c.Stream >= sf.Streams {
			panic(fmt.Sprintf("state: %d bytes of ext for %d cells of stream %d", len(c.Ext), len(c.Pos), c.Stream))
		}
		w.u32(uint32(sf.Streams))
		for stream := range sf.Streams {
			if stream != c.Stream || len(c.Pos) == 0 {
				w.u32(0)
				continue
			}
			w.section(&s, sequence, f)
		}
		out.Sections = append(out.Sections, s)
	}
	return out
}

func (w *writer) section(s *Section, sequence int32, f Format) {
	cells := len(s.Pos)
	w.u32(uint32(cells))
	for i, pos := range s.Pos {
		w.u32(uint32(pos))
		w.u32(1)
		w.at += copy(w.b[w.at:], s.Ext[i*f.ExtBytes:(i+1)*f.ExtBytes])
		w.u32(uint32(sequence))
	}
	if s.format.Transposed {
		w.u32(1)
	} else {
		w.u32(0)
	}
	w.u32(uint32(len(s.format.Layers)))
	if f.HasRotation {
		w.u32(uint32(s.format.Rotation.K))
		w.u32(uint32(s.format.Rotation.V))
	}
	for _, l := range s.format.Layers {
		w.u32(uint32(l.K.Type))
		w.u64(uint64(l.K.RowBytes))
		s.k = append(s.k, w.skip(cells*l.K.RowBytes))
	}
	for _, l := range s.format.Layers {
		if l.V.RowBytes == 0 {
			continue
		}
		w.u32(uint32(l.V.Type))
		if s.format.Transposed {
			w.u32(uint32(l.V.ElemBytes))
			w.u32(uint32(l.V.RowBytes / l.V.ElemBytes))
		} else {
			w.u64(uint64(l.V.RowBytes))
		}
		s.v = append(s.v, w.skip(cells*l.V.RowBytes))
	}
}
