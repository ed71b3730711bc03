package quant

import (
	"bytes"
	"encoding/binary"
	"math"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

const canary = 0xA5

// memory is rows in some layout, as a caller could have them, in canaries.
type memory struct {
	t    kv.Tensor
	rows kv.TensorRows
}

// drawMemory lays n rows out: pieces of any number of rows, each packed, in heads, with gaps between rows, with gaps between
// elements, or channel-major.
func drawMemory(rt *rapid.T, t kv.Tensor, n int) memory {
	m := memory{t: t}
	size, elems := t.DType.GroupBytes(), t.Width/t.DType.Group()
	for left := n; left > 0 || rapid.IntRange(0, 9).Draw(rt, "empty piece") == 9; {
		p := kv.Piece{Count: left}
		if rapid.Bool().Draw(rt, "more pieces") {
			p.Count = rapid.IntRange(0, left).Draw(rt, "rows of piece")
		}
		gap := rapid.IntRange(0, 9).Draw(rt, "gap")
		kind := rapid.SampledFrom([]string{"packed", "packed", "row gaps", "channel-major", "element gaps", "head-major", "heads apart", "heads channel-major"}).Draw(rt, "layout")
		heads := rapid.SampledFrom([]int{1, 2, 3, 4, elems}).Filter(func(n int) bool { return elems%n == 0 }).Draw(rt, "heads")
		if t.DType.Group() > 1 && (kind == "channel-major" || kind == "element gaps" || kind == "heads channel-major") {
			kind = "row gaps"
		}
		switch kind {
		case "row gaps":
			p.RowStride = elems*size + gap
		case "channel-major":
			p.RowStride = size + gap
			p.ElemStride = max(p.Count, 1)*p.RowStride + gap
		case "element gaps":
			p.ElemStride = size + gap
			p.RowStride = elems*p.ElemStride + gap
		case "head-major":
			p.Heads, p.RowStride = heads, elems/heads*size+gap
			p.HeadStride = max(p.Count, 1)*p.RowStride + gap
		case "heads apart":
			p.Heads, p.HeadStride = heads, elems/heads*size+gap
			p.RowStride = heads*p.HeadStride + gap
		case "heads channel-major":
			p.Heads, p.RowStride = heads, size+gap
			p.ElemStride = max(p.Count, 1)*p.RowStride + gap
			p.HeadStride = elems / heads * p.ElemStride
		}
		need := 0
		if p.Count > 0 {
			need = p.At(t, p.Count-1, elems-1) + size
		}
		p.Mem = bytes.Repeat([]byte{canary}, need+rapid.IntRange(0, 5).Draw(rt, "slack"))
		m.rows.Pieces = append(m.rows.Pieces, p)
		left -= p.Count
	}
	return m
}

// each calls fn with the place of every element (of a block type: every group), in the order of packed rows.
func (m memory) each(fn func(elem []byte)) {
	size := m.t.DType.GroupBytes()
	for _, p := range m.rows.Pieces {
		for r := range p.Count {
			for e := range m.t.Width / m.t.DType.Group() {
				fn(p.Mem[p.At(m.t, r, e):][:size])
			}
		}
	}
}

func (m memory) set(packed []byte) {
	m.each(func(elem []byte) { packed = packed[copy(elem, packed):] })
}

func (m memory) get() (packed []byte) {
	m.each(func(elem []byte) { packed = append(packed, elem...) })
	return packed
}

// touched reports whether anything but elements was written to. It overwrites the elements.
func (m memory) touched() bool {
	m.each(func(elem []byte) {
		for i := range elem {
			elem[i] = canary
		}
	})
	for _, p := range m.rows.Pieces {
		if len(bytes.Trim(p.Mem, string([]byte{canary}))) > 0 {
			return true
		}
	}
	return false
}

// drawFloats draws packed rows of every kind that a codec treats on its own: ordinary ones, zeros of both signs, tiny
// and huge ones, NaNs with payloads, infinities, any bits.
func drawFloats(rt *rapid.T, t kv.Tensor, n int) []byte {
	var out []byte
	kinds := []string{"normal", "normal", "normal", "zero", "tiny", "edge", "large", "special", "bits"}
	seed := rapid.Uint64().Draw(rt, "seed")
	next := func() float64 { // 0 to 1; splitmix64, so that rapid has one number to shrink, not thousands
		seed += 0x9e3779b97f4a7c15
		z := seed
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return float64((z^z>>31)>>11) / (1 << 53)
	}
	for range n * t.Width / groupValues {
		kind := rapid.SampledFrom(kinds).Draw(rt, "group")
		for range groupValues {
			v := 2*next() - 1
			switch kind {
			case "zero":
				v *= 0
			case "tiny": // around where the scale leaves f16's normal range
				v *= 2 * 127.0 / (1 << 14)
			case "edge":
				v *= 70_000
			case "large":
				v *= math.Ldexp(1, int(next()*140))
			default:
				v *= 8
			}
			e := elements(t.DType, float32(v))
			odd := kind == "bits" || kind == "special" && next() < 0.05
			for i := range e {
				if odd {
					e[i] = byte(next() * 256)
				}
			}
			if odd && kind == "special" { // all ones in the exponent: infinity or NaN
				switch t.DType {
				case kv.F16:
					e[1] |= 0x7c
				case kv.BF16:
					e[0], e[1] = e[0]|0x80, e[1]|0x7f
				case kv.F32:
					e[2], e[3] = e[2]|0x80, e[3]|0x7f
				}
			}
			out = append(out, e...)
		}
	}
	return out
}

// drawRows draws packed rows of any tensor: bytes that compress, that don't, and floats.
func drawRows(rt *rapid.T, t kv.Tensor, n int) []byte {
	size := n * t.RowBytes()
	if t.DType.IsFloat() && t.Width%groupValues == 0 {
		return drawFloats(rt, t, n)
	}
	out := make([]byte, 0, size+8)
	repeat := rapid.IntRange(0, 3).Draw(rt, "repeat")
	for seed := rapid.Uint64().Draw(rt, "seed"); len(out) < size; {
		seed = seed*6364136223846793005 + 1442695040888963407
		word := seed >> 32
		for range 1 + repeat*repeat*8 {
			out = binary.LittleEndian.AppendUint32(out, uint32(word))
		}
	}
	return out[:size]
}

func drawFloatTensor(rt *rapid.T) kv.Tensor {
	return kv.Tensor{
		Role:  kv.RoleK,
		DType: rapid.SampledFrom([]kv.DType{kv.F16, kv.BF16, kv.F32}).Draw(rt, "dtype"),
		Width: groupValues * rapid.IntRange(1, 6).Draw(rt, "groups"),
	}
}

func drawTensor(rt *rapid.T) kv.Tensor {
	t := kv.Tensor{Role: kv.RoleState, DType: kv.DType(rapid.IntRange(int(kv.Bytes), int(kv.Q5_1)).Draw(rt, "dtype"))}
	t.Width = t.DType.Group() * rapid.IntRange(1, 200/t.DType.Group()).Draw(rt, "width")
	if t.DType.IsFloat() && rapid.Bool().Draw(rt, "whole groups") {
		t.Width = groupValues * (1 + t.Width/groupValues)
	}
	return t
}
