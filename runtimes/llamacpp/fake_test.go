package llamacpp_test

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"sort"
	"strings"
	"unsafe"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
)

// fake is a llama.cpp context in a few lines: it has cells, windows, streams and state blobs, and an "attention" that is a
// hash of every row a token may see. One wrong, missing or displaced row changes all rows and logits after it, to the
// bit, and nothing else does.
type fake struct {
	layers     []fakeLayer
	window     int // n_swa
	transposed bool
	latent     bool    // no V
	rotation   *[2]int // of K and V, as releases from 0.6.0 on say it
	streams    int
	contextLen int
	ropeType   int32
	recurrent  bool
	causal     string
	meta       map[string]string
	file       string // that it was loaded from
	reorder    bool   // hands out cells in another order than that of positions
	refuseSet  bool
	stale      bool // a state that is given back reads differently

	seqs   map[int32]map[int32]*fakeCell // by sequence, by position
	logits uint64
	decode int // tokens evaluated

	read    int       // bytes of states that it handed out
	sets    int       // states that it was given
	largest int       // of them, in bytes
	onSet   func(int) // called with sets
}

type fakeLayer struct {
	windowed bool
	width    int // f16 values
}

// fakeCell has a row for each layer; a window layer's is nil once it is outside of the window.
type fakeCell struct{ k, v [][]byte }

func (f *fake) row(seed uint64, layer int, role byte) []byte {
	b := make([]byte, 0, 2*f.layers[layer].width)
	for i := 0; len(b) < cap(b); i++ {
		h := fnv.New64a()
		fmt.Fprintf(h, "%x %d %c %d", seed, layer, role, i)
		b = binary.LittleEndian.AppendUint16(b, uint16(h.Sum64()))
	}
	return b
}

// Decode evaluates tokens one by one.
func (f *fake) Decode(tokens []kv.Token, first, sequence int) error {
	seq := int32(sequence)
	cells := f.seqs[seq]
	if cells == nil {
		cells = map[int32]*fakeCell{}
		f.seqs[seq] = cells
	}
	if last := f.max(seq); last >= 0 && last != int32(first)-1 {
		return fmt.Errorf("decode at %d after position %d", first, f.max(seq))
	}
	for i, token := range tokens {
		pos := int32(first + i)
		h := fnv.New64a()
		fmt.Fprintf(h, "%d at %d;", token, pos)
		for l, layer := range f.layers {
			from := int32(0)
			if layer.windowed {
				from = max(0, pos-int32(f.window)+1)
			}
			for p := from; p < pos; p++ {
				c := cells[p]
				if c == nil || c.k[l] == nil {
					fmt.Fprintf(h, "missing %d of %d;", p, l)
					continue
				}
				h.Write(c.k[l])
				if !f.latent {
					h.Write(c.v[l])
				}
			}
		}
		f.logits = h.Sum64()
		c := &fakeCell{}
		for l := range f.layers {
			c.k = append(c.k, f.row(f.logits, l, 'k'))
			c.v = append(c.v, f.row(f.logits, l, 'v'))
		}
		cells[pos] = c
		f.decode++
		if len(cells) > f.contextLen {
			return fmt.Errorf("no room for %d cells", len(cells))
		}
	}
	f.forget(seq)
	return nil
}

// forget drops what no later token can see.
func (f *fake) forget(seq int32) {
	last := f.max(seq)
	for pos, c := range f.seqs[seq] {
		for l, layer := range f.layers {
			if layer.windowed && pos <= last-int32(f.window) {
				c.k[l], c.v[l] = nil, nil
			}
		}
	}
}

func (f *fake) max(seq int32) int32 {
	last := int32(-1)
	for pos := range f.seqs[seq] {
		last = max(last, pos)
	}
	return last
}

func (f *fake) state(seq int32, flags uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 0xaf143cd8)
	b = binary.LittleEndian.AppendUint32(b, uint32(seq))
	if f.recurrent {
		return binary.LittleEndian.AppendUint64(append(b, "recurrent"...), f.logits)
	}
	if flags&llamacpp.FlagPartial == 0 || f.window == 0 {
		b = f.section(b, seq, false)
	}
	if f.window > 0 {
		b = f.section(b, seq, true)
	}
	return b
}

// inWindow reports whether the window layers still have a cell's rows.
func (f *fake) inWindow(c *fakeCell) bool {
	for l, layer := range f.layers {
		if layer.windowed && c.k[l] == nil {
			return false
		}
	}
	return true
}

func (f *fake) section(b []byte, seq int32, windowed bool) []byte {
	u32 := func(v int) { b = binary.LittleEndian.AppendUint32(b, uint32(v)) }
	u64 := func(v int) { b = binary.LittleEndian.AppendUint64(b, uint64(v)) }
	var pos []int32
	for p := range f.seqs[seq] {
		if !windowed || p > f.max(seq)-int32(f.window) && f.inWindow(f.seqs[seq][p]) {
			pos = append(pos, p)
		}
	}
	slices.Sort(pos)
	if f.reorder && len(pos) > 2 { // a ring that has wrapped, and a hole that was filled
		k := len(pos) / 3
		pos = append(slices.Clone(pos[k:]), pos[:k]...)
		pos[0], pos[1] = pos[1], pos[0]
	}
	u32(f.streams)
	for s := range f.streams {
		if f.streams > 1 && int32(s) != seq || len(pos) == 0 {
			u32(0)
			continue
		}
		u32(len(pos))
		for _, p := range pos {
			u32(int(p))
			u32(1)
			u32(int(seq))
		}
		if f.transposed {
			u32(1)
		} else {
			u32(0)
		}
		var layers []int
		for l, layer := range f.layers {
			if layer.windowed == windowed {
				layers = append(layers, l)
			}
		}
		u32(len(layers))
		if f.rotation != nil {
			u32(f.rotation[0])
			u32(f.rotation[1])
		}
		for _, l := range layers {
			u32(1)
			u64(2 * f.layers[l].width)
			for _, p := range pos {
				b = append(b, f.seqs[seq][p].k[l]...)
			}
		}
		for _, l := range layers {
			if f.latent {
				break
			}
			u32(1)
			if !f.transposed {
				u64(2 * f.layers[l].width)
				for _, p := range pos {
					b = append(b, f.seqs[seq][p].v[l]...)
				}
				continue
			}
			u32(2)
			u32(f.layers[l].width)
			for j := range f.layers[l].width {
				for _, p := range pos {
					b = append(b, f.seqs[seq][p].v[l][2*j:2*j+2]...)
				}
			}
		}
	}
	return b
}

// load is what llama.cpp does with a blob; it panics on one that is not exactly of this context.
func (f *fake) load(b []byte, seq int32) {
	all := len(b)
	next := func(n int) []byte {
		x := b[:n]
		b = b[n:]
		return x
	}
	u32 := func() int { return int(int32(binary.LittleEndian.Uint32(next(4)))) }
	u64 := func() int { return int(binary.LittleEndian.Uint64(next(8))) }
	want := func(what string, found, want int) {
		if found != want {
			panic(fmt.Sprintf("%s is %d, expected %d, %d bytes from the end of %d", what, found, want, len(b), all))
		}
	}
	next(8)
	if f.recurrent {
		next(9)
		f.logits = binary.LittleEndian.Uint64(next(8))
		f.seqs[seq] = map[int32]*fakeCell{0: {}}
		return
	}
	cells := map[int32]*fakeCell{}
	f.seqs[seq] = cells
	section := func(windowed bool) {
		want("n_stream", u32(), f.streams)
		for range f.streams {
			n := u32()
			if n == 0 {
				continue
			}
			var pos []int32
			for range n {
				p := int32(u32())
				want("n_seq_id", u32(), 1)
				u32()
				if cells[p] == nil {
					if windowed {
						panic(fmt.Sprintf("window cell %d has no base cell", p))
					}
					cells[p] = &fakeCell{k: make([][]byte, len(f.layers)), v: make([][]byte, len(f.layers))}
				}
				pos = append(pos, p)
			}
			want("v_trans", u32(), map[bool]int{true: 1}[f.transposed])
			var layers []int
			for l, layer := range f.layers {
				if layer.windowed == windowed {
					layers = append(layers, l)
				}
			}
			want("n_layer", u32(), len(layers))
			if f.rotation != nil {
				want("n_rot_k", u32(), f.rotation[0])
				want("n_rot_v", u32(), f.rotation[1])
			}
			for _, l := range layers {
				want("k_type", u32(), 1)
				want("k row", u64(), 2*f.layers[l].width)
				for _, p := range pos {
					cells[p].k[l] = slices.Clone(next(2 * f.layers[l].width))
				}
			}
			for _, l := range layers {
				if f.latent {
					break
				}
				want("v_type", u32(), 1)
				if !f.transposed {
					want("v row", u64(), 2*f.layers[l].width)
					for _, p := range pos {
						cells[p].v[l] = slices.Clone(next(2 * f.layers[l].width))
					}
					continue
				}
				want("v el", u32(), 2)
				want("v width", u32(), f.layers[l].width)
				for range f.layers[l].width {
					for _, p := range pos {
						cells[p].v[l] = append(cells[p].v[l], next(2)...)
					}
				}
			}
		}
	}
	section(false)
	if f.window > 0 {
		section(true)
	}
	want("rest", len(b), 0)
}

// copy lets one sequence hold positions [p0, p1) of another, too.
func (f *fake) copy(from, to, p0, p1 int32) {
	if f.seqs[to] == nil {
		f.seqs[to] = map[int32]*fakeCell{}
	}
	for pos, c := range f.seqs[from] {
		if pos >= p0 && (p1 < 0 || pos < p1) {
			f.seqs[to][pos] = &fakeCell{slices.Clone(c.k), slices.Clone(c.v)}
		}
	}
}

// fits reports whether there is room for a blob's cells beside those of the other sequences.
func (f *fake) fits(blob []byte, seq int32) bool {
	if f.recurrent || f.streams > 1 {
		return true
	}
	cells := int(binary.LittleEndian.Uint32(blob[12:]))
	for other, have := range f.seqs {
		if other != seq {
			cells += len(have)
		}
	}
	return cells <= f.contextLen
}

// library is the fake as what Attach wants.
func (f *fake) library() *llamacpp.Library {
	f.seqs = map[int32]map[int32]*fakeCell{}
	values := map[string]string{"general.architecture": "fake", "general.name": "fake", "fake.rope.freq_base": "10000.000000", "fake.rope.dimension_count": "8"}
	if f.file != "" { // loaded from there
		g, err := gguf.Open(f.file)
		if err != nil {
			panic(err)
		}
		values = map[string]string{}
		for k, v := range g.Meta {
			if x, ok := v.Scalar.(float64); ok {
				values[k] = fmt.Sprintf("%f", x)
			} else if v.Scalar != nil {
				values[k] = fmt.Sprint(v.Scalar)
			}
		}
	}
	for k, v := range f.meta {
		values[k] = v
	}
	var keys []string
	for k := range values {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	put := func(s string, buf *byte, size uintptr) int32 {
		n := copy(unsafe.Slice(buf, size-1), s)
		unsafe.Slice(buf, size)[n] = 0
		return int32(len(s))
	}
	return &llamacpp.Library{
		GetModel:      func(uintptr) uintptr { return 2 },
		GetMemory:     func(uintptr) uintptr { return 3 },
		Synchronize:   func(uintptr) {},
		ContextTokens: func(uintptr) uint32 { return uint32(f.contextLen) },
		Batch:         func(uintptr) uint32 { return 32 },
		MicroBatch:    func(uintptr) uint32 { return 32 },
		Sequences:     func(uintptr) uint32 { return 3 },
		StateSize:     func(_ uintptr, seq int32, flags uint32) uintptr { return uintptr(len(f.state(seq, flags))) },
		StateGet: func(_ uintptr, dst *byte, size uintptr, seq int32, flags uint32) uintptr {
			f.read += int(size)
			return uintptr(copy(unsafe.Slice(dst, size), f.state(seq, flags)))
		},
		StateSet: func(_ uintptr, src *byte, n uintptr, seq int32, _ uint32) uintptr {
			if f.refuseSet {
				f.seqs[seq] = map[int32]*fakeCell{0: {}} // half of it
				return 0
			}
			f.sets++
			if f.onSet != nil {
				f.onSet(f.sets)
			}
			if f.largest = max(f.largest, int(n)); !f.fits(unsafe.Slice(src, n), seq) {
				return 0
			}
			f.load(unsafe.Slice(src, n), seq)
			if f.stale {
				f.logits++
				f.seqs[seq][f.max(seq)].k[0][0]++
			}
			return n
		},
		SequenceRemove: func(_ uintptr, seq, from, to int32) bool { delete(f.seqs, seq); return true },
		SequenceCopy:   func(_ uintptr, from, to, p0, p1 int32) { f.copy(from, to, p0, p1) },
		SequenceMax:    func(_ uintptr, seq int32) int32 { return f.max(seq) },
		Layers:         func(uintptr) int32 { return int32(len(f.layers)) },
		Heads:          func(uintptr) int32 { return 1 },
		Embedding:      func(uintptr) int32 { return 16 },
		Window:         func(uintptr) int32 { return int32(f.window) },
		RopeType:       func(uintptr) int32 { return f.ropeType },
		RopeScale:      func(uintptr) float32 { return 1 },
		HasEncoder:     func(uintptr) bool { return false },
		IsRecurrent:    func(uintptr) bool { return f.recurrent },
		MetaCount:      func(uintptr) int32 { return int32(len(keys)) },
		MetaKey:        func(_ uintptr, i int32, buf *byte, size uintptr) int32 { return put(keys[i], buf, size) },
		MetaIndex:      func(_ uintptr, i int32, buf *byte, size uintptr) int32 { return put(values[keys[i]], buf, size) },
		Meta: func(_ uintptr, key string, buf *byte, size uintptr) int32 {
			if f.causal != "" && strings.HasSuffix(key, ".attention.causal") {
				return put(f.causal, buf, size)
			}
			if v, ok := values[key]; ok {
				return put(v, buf, size)
			}
			return -1
		},
		Version: func() string { return "fake" },
	}
}
