package llamacpp_test

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/runtimes/llamacpp"
)

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
	last := f.max(seq)
	for p, c := range f.seqs[seq] {
		if !windowed || p > last-int32(f.window) && f.inWindow(c) {
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
