package kv_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// visit calls f with the memory of each element of r, row by row, under the bounds checks of the language.
func visit(t kv.Tensor, r kv.TensorRows, f func(piece int, at int, element []byte)) {
	size, elems := t.DType.GroupBytes(), t.Width/t.DType.Group()
	for i, p := range r.Pieces {
		mem := p.Mem[:len(p.Mem):len(p.Mem)]
		for j := range p.Count {
			for e := range elems {
				at := p.At(t, j, e)
				f(i, at, mem[at:at+size])
			}
		}
	}
}

// packed is the rows of r one after the other: the reference that all layouts are compared with.
func packed(t kv.Tensor, r kv.TensorRows) []byte {
	var out []byte
	visit(t, r, func(_, _ int, element []byte) { out = append(out, element...) })
	return out
}

// tensors is tensors of fixed width, small enough to lay out by hand.
var tensors = rapid.Custom(func(t *rapid.T) kv.Tensor {
	d := rapid.SampledFrom([]kv.DType{kv.Bytes, kv.F32, kv.F16, kv.BF16, kv.Q8_0, kv.Q4_0, kv.Q4_1, kv.Q5_0, kv.Q5_1}).Draw(t, "dtype")
	return kv.Tensor{Role: kv.RoleV, DType: d, Width: d.Group() * rapid.IntRange(1, 9).Draw(t, "groups of a row")}
})

// drawLayout draws rows of a tensor in pieces of any layout, and the same rows packed.
func drawLayout(t *rapid.T, tensor kv.Tensor) (kv.TensorRows, []byte) {
	size, elems := tensor.DType.GroupBytes(), tensor.Width/tensor.DType.Group()
	r := kv.TensorRows{First: rapid.IntRange(0, 1000).Draw(t, "first")}
	var want []byte
	fill := byte(0)
	for range rapid.IntRange(0, 4).Draw(t, "pieces") {
		p := kv.Piece{Count: rapid.IntRange(0, 12).Draw(t, "rows")}
		kinds := []string{"packed", "padded", "head-major", "heads apart"}
		if tensor.DType.Group() == 1 {
			kinds = append(kinds, "channel-major", "spread")
		}
		slack := rapid.IntRange(0, 5).Draw(t, "slack")
		row, elem := elems*size, size
		end := 0 // of what is laid out
		switch rapid.SampledFrom(kinds).Draw(t, "layout") {
		case "packed":
			if rapid.Bool().Draw(t, "said") {
				p.RowStride, p.ElemStride = row, elem
			}
		case "padded":
			row += slack
			p.RowStride = row
		case "channel-major":
			row, elem = size+slack, p.Count*(size+slack)
			if p.Count == 0 {
				elem = size
			}
			p.RowStride, p.ElemStride = row, elem
		case "spread":
			elem += slack
			row = elems * elem
			p.RowStride, p.ElemStride = row, elem
		case "head-major":
			p.Heads = drawHeads(t, elems)
			row /= p.Heads
			if slack > 0 {
				row += slack
				p.RowStride = row
			}
			p.HeadStride = (p.Count + slack) * row
			end = (p.Heads - 1) * p.HeadStride
			elems /= p.Heads
		case "heads apart":
			p.Heads = drawHeads(t, elems)
			p.HeadStride = row/p.Heads + slack
			row = p.Heads * p.HeadStride
			p.RowStride = row
			end = (p.Heads - 1) * p.HeadStride
			elems /= p.Heads
		}
		if p.Count > 0 {
			p.Mem = make([]byte, end+(p.Count-1)*row+(elems-1)*elem+size)
		}
		elems = tensor.Width / tensor.DType.Group()
		for j := range p.Count {
			for e := range elems {
				for b := range size {
					fill += 37
					p.Mem[p.At(tensor, j, e)+b] = fill
					want = append(want, fill)
				}
			}
		}
		r.Pieces = append(r.Pieces, p)
	}
	return r, want
}

// drawHeads draws a number of heads for rows of so many elements.
func drawHeads(t *rapid.T, elems int) int {
	return rapid.SampledFrom([]int{1, 2, 3, 4, elems}).Filter(func(n int) bool { return elems%n == 0 }).Draw(t, "heads")
}

// Every layout is accepted, reads as the packed rows, and is refused when one byte is missing.
func TestLayouts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tensor := tensors.Draw(t, "tensor")
		r, want := drawLayout(t, tensor)
		if err := r.Validate(tensor); err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		if got := packed(tensor, r); !bytes.Equal(got, want) {
			t.Fatalf("reads %x, want %x", got, want)
		}
		if n := r.Count(); n*tensor.RowBytes() != len(want) || r.End() != r.First+n {
			t.Fatalf("%d rows to %d from %d, %d bytes", n, r.End(), r.First, len(want))
		}
		for i, p := range r.Pieces {
			if p.Count == 0 {
				continue
			}
			short := kv.TensorRows{First: r.First, Pieces: slices.Clone(r.Pieces)}
			short.Pieces[i].Mem = p.Mem[:len(p.Mem)-1]
			if err := short.Validate(tensor); !errors.Is(err, kv.ErrRows) {
				t.Fatalf("piece %d is a byte short: %v", i, err)
			}
		}
	})
}

// A slice is the same memory as the rows it was cut from, and nothing else; slices of slices too.
func TestSliceIsThePackedReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tensor := tensors.Draw(t, "tensor")
		r, want := drawLayout(t, tensor)
		for range 2 {
			start := rapid.IntRange(r.First, r.End()).Draw(t, "start")
			end := rapid.IntRange(start, r.End()).Draw(t, "end")
			s := r.Slice(tensor, start, end)
			if s.First != start || s.End() != end {
				t.Fatalf("slice [%d, %d) is [%d, %d)", start, end, s.First, s.End())
			}
			if err := s.Validate(tensor); err != nil {
				t.Fatalf("slice [%d, %d): %v", start, end, err)
			}
			n := tensor.RowBytes()
			part := want[(start-r.First)*n : (end-r.First)*n]
			if got := packed(tensor, s); !bytes.Equal(got, part) {
				t.Fatalf("slice [%d, %d) reads %x, want %x", start, end, got, part)
			}
			visit(tensor, s, func(_, _ int, element []byte) {
				for i := range element {
					element[i] ^= 0xff
				}
			})
			for i := range part {
				part[i] ^= 0xff
			}
			if !bytes.Equal(packed(tensor, r), want) {
				t.Fatalf("writing through the slice [%d, %d) wrote other rows", start, end)
			}
			r, want = s, part
		}
	})
}

// checkAccess fails if rows that Validate let pass lead outside of their memory, or to one byte twice.
func checkAccess(t interface{ Fatalf(string, ...any) }, tensor kv.Tensor, r kv.TensorRows) {
	for i, p := range r.Pieces {
		if p.Count > 0 && tensor.Width > 0 && p.Count > len(p.Mem)/tensor.RowBytes() {
			t.Fatalf("piece %d: %d rows of %d bytes in %d bytes of memory", i, p.Count, tensor.RowBytes(), len(p.Mem))
		}
	}
	seen := make([][]bool, len(r.Pieces))
	for i, p := range r.Pieces {
		seen[i] = make([]bool, len(p.Mem))
	}
	visit(tensor, r, func(piece, at int, element []byte) { // panics outside of the memory
		for b := range element {
			if seen[piece][at+b] {
				t.Fatalf("piece %d: byte %d belongs to two elements", piece, at+b)
			}
			seen[piece][at+b] = true
		}
	})
	if r.First < 0 || r.End() < r.First || r.End() > kv.MaxTokens {
		t.Fatalf("positions [%d, %d)", r.First, r.End())
	}
	if n := r.Count(); n > 0 {
		packed(tensor, r.Slice(tensor, r.First+n/2, r.End()))
	}
}

// Whatever strides and counts a caller gives: what Validate lets pass can be read, each byte once.
func TestRowsValidateIsEnough(t *testing.T) {
	fair, wild := rapid.IntRange(0, 40), rapid.SampledFrom([]int{math.MaxInt, math.MaxInt / 2, math.MaxInt32, 1 << 24, 2000, -1, -2, math.MinInt})
	odd := rapid.OneOf(fair, fair, fair, fair, fair, fair, wild, rapid.Int())
	rapid.Check(t, func(t *rapid.T) {
		tensor := tensors.Draw(t, "tensor")
		r := kv.TensorRows{First: odd.Draw(t, "first")}
		for range rapid.SampledFrom([]int{0, 1, 1, 1, 2, 3}).Draw(t, "pieces") {
			r.Pieces = append(r.Pieces, kv.Piece{
				Mem:       make([]byte, rapid.SampledFrom([]int{3000, 3000, 200, 40, 1, 0}).Draw(t, "bytes")),
				Count:     odd.Draw(t, "rows"),
				RowStride: odd.Draw(t, "row stride"), ElemStride: odd.Draw(t, "element stride"),
				Heads: rapid.OneOf(rapid.IntRange(0, 4), odd).Draw(t, "heads"), HeadStride: odd.Draw(t, "head stride"),
			})
		}
		if err := r.Validate(tensor); err == nil {
			checkAccess(t, tensor, r)
		} else if !errors.Is(err, kv.ErrRows) {
			t.Fatalf("%v is not ErrRows", err)
		}
	})
}

// Rows are one entry for each tensor; a state is one row at most, of any length if its width varies.
func TestRowsOfDescriptor(t *testing.T) {
	d, err := kv.Descriptor{
		Groups: []kv.Group{{Kind: kv.All}, {Kind: kv.StateAt}},
		Tensors: []kv.Tensor{
			{Role: kv.RoleK, DType: kv.F16, Width: 4},
			{Role: kv.RoleState, DType: kv.F32, Width: 2, Group: 1},
			{Role: kv.RoleState, DType: kv.Bytes, Group: 1},
		},
	}.Normal()
	if err != nil {
		t.Fatal(err)
	}
	k, state, blob := kv.Packed(5, 3, make([]byte, 24)), kv.Packed(8, 1, make([]byte, 8)), kv.Packed(8, 1, make([]byte, 777))
	none := kv.TensorRows{}
	one := kv.Piece{Mem: make([]byte, 8), Count: 1}
	rows := func(p kv.Piece) kv.TensorRows { return kv.TensorRows{First: 5, Pieces: []kv.Piece{p}} }
	for name, c := range map[string]struct {
		rows kv.Rows
		ok   bool
	}{
		"all":                {kv.Rows{k, state, blob}, true},
		"none":               {kv.Rows{none, none, none}, true},
		"an empty state":     {kv.Rows{k, state, kv.Packed(8, 1, nil)}, true},
		"nil":                {nil, false},
		"one too few":        {kv.Rows{k, state}, false},
		"one too many":       {kv.Rows{k, state, blob, none}, false},
		"short":              {kv.Rows{kv.Packed(5, 3, make([]byte, 23)), state, blob}, false},
		"negative position":  {kv.Rows{kv.Packed(-1, 3, make([]byte, 24)), state, blob}, false},
		"last position":      {kv.Rows{kv.Packed(kv.MaxTokens-3, 3, make([]byte, 24)), state, blob}, true},
		"beyond the last":    {kv.Rows{kv.Packed(kv.MaxTokens-2, 3, make([]byte, 24)), state, blob}, false},
		"far beyond":         {kv.Rows{kv.Packed(math.MaxInt-1, 3, make([]byte, 24)), state, blob}, false},
		"negative count":     {kv.Rows{kv.Packed(0, -1, make([]byte, 24)), state, blob}, false},
		"two states":         {kv.Rows{k, kv.Packed(8, 2, make([]byte, 16)), blob}, false},
		"two blobs":          {kv.Rows{k, state, kv.Packed(8, 2, make([]byte, 16))}, false},
		"a state in pieces":  {kv.Rows{k, {First: 8, Pieces: []kv.Piece{one, one}}, blob}, false},
		"a blob in pieces":   {kv.Rows{k, state, {First: 8, Pieces: []kv.Piece{one, one}}}, false},
		"elements overlap":   {kv.Rows{rows(kv.Piece{Mem: make([]byte, 99), Count: 1, ElemStride: 1}), state, blob}, false},
		"rows overlap":       {kv.Rows{rows(kv.Piece{Mem: make([]byte, 99), Count: 2, RowStride: 6}), state, blob}, false},
		"rows interleave":    {kv.Rows{rows(kv.Piece{Mem: make([]byte, 99), Count: 2, RowStride: 4, ElemStride: 4}), state, blob}, false},
		"rows backwards":     {kv.Rows{rows(kv.Piece{Mem: make([]byte, 99), Count: 2, RowStride: -8}), state, blob}, false},
		"heads overlap":      {kv.Rows{rows(kv.Piece{Mem: make([]byte, 99), Count: 3, Heads: 2, HeadStride: 10}), state, blob}, false},
		"heads and rows":     {kv.Rows{rows(kv.Piece{Mem: make([]byte, 99), Count: 3, Heads: 2, HeadStride: 6, RowStride: 9}), state, blob}, false},
		"no head stride":     {kv.Rows{rows(kv.Piece{Mem: make([]byte, 99), Count: 1, Heads: 2}), state, blob}, false},
		"three of four":      {kv.Rows{rows(kv.Piece{Mem: make([]byte, 99), Count: 1, Heads: 3, HeadStride: 9}), state, blob}, false},
		"negative heads":     {kv.Rows{rows(kv.Piece{Mem: make([]byte, 99), Count: 1, Heads: -2, HeadStride: 9}), state, blob}, false},
		"heads of a blob":    {kv.Rows{k, state, {First: 8, Pieces: []kv.Piece{{Mem: make([]byte, 9), Count: 1, Heads: 2, HeadStride: 4}}}}, false},
		"head-major":         {kv.Rows{rows(kv.Piece{Mem: make([]byte, 24), Count: 3, Heads: 2, HeadStride: 12}), state, blob}, true},
		"a byte short":       {kv.Rows{rows(kv.Piece{Mem: make([]byte, 23), Count: 3, Heads: 2, HeadStride: 12}), state, blob}, false},
		"the wrong position": {kv.Rows{k, {First: -8, Pieces: []kv.Piece{one}}, blob}, false},
	} {
		err := c.rows.Validate(&d)
		if (err == nil) != c.ok || (err != nil && !errors.Is(err, kv.ErrRows)) {
			t.Errorf("%s: %v, want ok = %v", name, err, c.ok)
		}
	}
	blocks := kv.Tensor{Role: kv.RoleK, DType: kv.Q8_0, Width: 64}
	if err := rows(kv.Piece{Mem: make([]byte, 999), Count: 1, ElemStride: 68}).Validate(blocks); !errors.Is(err, kv.ErrRows) {
		t.Errorf("blocks of a quantized row lie apart: %v", err)
	}
	if s := blob.Slice(d.Tensors[2], 8, 9); s.Count() != 1 || len(s.Pieces[0].Mem) != 777 {
		t.Error("a state of varying length is not sliced whole")
	}
}
