package state

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/dormousekv/dormouse/kv"
	"pgregory.net/rapid"
)

// cache is a KV cache as llama.cpp keeps it, written without the package under test: logical rows by position.
type cache struct {
	streams, stream int
	transposed      bool
	rotation        *[2]int // of K and V, as releases from 0.6.0 on say it
	layers          []layer
	pos             []int32 // in cell order
	ext             []byte  // extBytes a cell
}

type layer struct {
	typ         int32
	k, v        map[int32][]byte // by position
	elem, width int
}

// encode writes the section field by field, as llama.cpp's source does.
func (c *cache) encode(b []byte, sequence int32, extBytes int) []byte {
	u32 := func(v int) { b = binary.LittleEndian.AppendUint32(b, uint32(v)) }
	u64 := func(v int) { b = binary.LittleEndian.AppendUint64(b, uint64(v)) }
	u32(c.streams)
	for s := range c.streams {
		if s != c.stream || len(c.pos) == 0 {
			u32(0)
			continue
		}
		u32(len(c.pos))
		for i, p := range c.pos {
			u32(int(p))
			u32(1)
			b = append(b, c.ext[i*extBytes:(i+1)*extBytes]...)
			u32(int(sequence))
		}
		if c.transposed {
			u32(1)
		} else {
			u32(0)
		}
		u32(len(c.layers))
		if c.rotation != nil {
			u32(c.rotation[0])
			u32(c.rotation[1])
		}
		for _, l := range c.layers {
			u32(int(l.typ))
			u64(len(l.k[c.pos[0]]))
			for _, p := range c.pos {
				b = append(b, l.k[p]...)
			}
		}
		for _, l := range c.layers {
			if l.v == nil {
				continue
			}
			u32(int(l.typ))
			if !c.transposed {
				u64(len(l.v[c.pos[0]]))
				for _, p := range c.pos {
					b = append(b, l.v[p]...)
				}
				continue
			}
			u32(l.elem)
			u32(l.width)
			for j := range l.width {
				for _, p := range c.pos {
					b = append(b, l.v[p][j*l.elem:(j+1)*l.elem]...)
				}
			}
		}
	}
	return b
}

func encode(sequence int32, extBytes int, caches ...*cache) []byte {
	b := binary.LittleEndian.AppendUint32(nil, magic)
	b = binary.LittleEndian.AppendUint32(b, uint32(sequence))
	for _, c := range caches {
		b = c.encode(b, sequence, extBytes)
	}
	return b
}

// only is the cache with the cells of some positions, in that order.
func (c *cache) only(pos []int32, extBytes int) *cache {
	d := *c
	d.pos, d.ext = pos, nil
	for _, p := range pos {
		i := slices.Index(c.pos, p)
		d.ext = append(d.ext, c.ext[i*extBytes:(i+1)*extBytes]...)
	}
	return &d
}

type shape struct {
	typ           int32
	group, bytes  int
	canTransposed bool
}

// rotate lets the cache say how it is rotated: by a matrix that fits into its rows, or not at all.
func (c *cache) rotate(t *rapid.T, name string) {
	c.rotation = new([2]int)
	if rapid.Bool().Draw(t, name+" rotated") {
		c.widen(64)
		c.rotation = &[2]int{64 << rapid.IntRange(0, 1).Draw(t, name+" n_rot_k"), 64}
	}
}

// widen makes rows of so many times the values.
func (c *cache) widen(by int) {
	for i := range c.layers {
		l := &c.layers[i]
		l.width *= by
		for p := range l.k {
			l.k[p] = bytes.Repeat(l.k[p], by*2)
			if l.v != nil {
				l.v[p] = bytes.Repeat(l.v[p], by)
			}
		}
	}
}

var shapes = []shape{{0, 1, 4, true}, {1, 1, 2, true}, {30, 1, 2, true}, {8, 32, 34, false}, {2, 32, 18, false}}

func drawCache(t *rapid.T, name string, extBytes int, hasV bool, first int) *cache {
	sh := rapid.SampledFrom(shapes).Draw(t, name+" type")
	c := &cache{streams: rapid.IntRange(1, 3).Draw(t, name+" streams")}
	c.stream = rapid.IntRange(0, c.streams-1).Draw(t, name+" stream")
	c.transposed = sh.canTransposed && rapid.Bool().Draw(t, name+" transposed")
	n := rapid.IntRange(1, 20).Draw(t, name+" cells")
	for i := range n {
		c.pos = append(c.pos, int32(first+i))
	}
	c.pos = rapid.Permutation(c.pos).Draw(t, name+" cell order")
	c.ext = make([]byte, n*extBytes)
	for i := range c.ext {
		c.ext[i] = byte(i * 7)
	}
	seed := byte(rapid.IntRange(0, 255).Draw(t, name+" seed"))
	fill := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			seed = seed*5 + 113
			b[i] = seed
		}
		return b
	}
	for range rapid.IntRange(1, 3).Draw(t, name+" layers") {
		groups := rapid.IntRange(1, 3).Draw(t, name+" width")
		l := layer{typ: sh.typ, k: map[int32][]byte{}, elem: sh.bytes, width: groups}
		if hasV {
			l.v = map[int32][]byte{}
		}
		for _, p := range c.pos {
			l.k[p] = fill((groups + 1) * sh.bytes)
			if hasV {
				l.v[p] = fill(groups * sh.bytes)
			}
		}
		c.layers = append(c.layers, l)
	}
	return c
}

// packed copies rows out, whatever their strides.
func packed(t kv.Tensor, r kv.TensorRows) []byte {
	var out []byte
	for _, p := range r.Pieces {
		row, elem := p.Strides(t)
		size := t.DType.GroupBytes()
		for i := range p.Count {
			for j := range t.Width / t.DType.Group() {
				at := i*row + j*elem
				out = append(out, p.Mem[at:at+size]...)
			}
		}
	}
	return out
}

// unpack writes packed rows to where r says.
func unpack(t kv.Tensor, r kv.TensorRows, src []byte) {
	for _, p := range r.Pieces {
		row, elem := p.Strides(t)
		size := t.DType.GroupBytes()
		for i := range p.Count {
			for j := range t.Width / t.DType.Group() {
				src = src[copy(p.Mem[i*row+j*elem:][:size], src):]
			}
		}
	}
}

func tensor(tf TensorFormat) kv.Tensor {
	d, _ := tf.DType()
	return kv.Tensor{DType: d, Width: tf.Width(), Role: kv.RoleK}
}

type fatal interface{ Fatalf(string, ...any) }

// wantRows compares the rows of a section with the logical ones.
func wantRows(t fatal, s *Section, c *cache, first, end int) {
	for i, l := range c.layers {
		for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
			from, tf := l.k, s.format.Layers[i].K
			if role == kv.RoleV {
				from, tf = l.v, s.format.Layers[i].V
			}
			rows := s.Rows(i, role)
			if from == nil {
				if len(rows.Pieces) != 0 {
					t.Fatalf("layer %d has rows of a %s that does not exist", i, role)
				}
				continue
			}
			if rows.First != first || rows.End() != end {
				t.Fatalf("layer %d %s: rows [%d, %d), want [%d, %d)", i, role, rows.First, rows.End(), first, end)
			}
			if err := rows.Validate(tensor(tf)); err != nil {
				t.Fatalf("layer %d %s: %v", i, role, err)
			}
			var want []byte
			for p := first; p < end; p++ {
				want = append(want, from[int32(p)]...)
			}
			if got := packed(tensor(tf), rows); !bytes.Equal(got, want) {
				t.Fatalf("layer %d %s: rows differ", i, role)
			}
		}
	}
}
