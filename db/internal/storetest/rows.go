package storetest

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// Truth returns the right row of a tensor at position pos of p. Scope does not matter: it changes no computation.
func Truth(d kv.Descriptor, p *kv.Prompt, tensor, pos int) []byte {
	h := fnv.New64a()
	fmt.Fprint(h, tensor, d.Weights, p.Adapters)
	for i, tok := range p.Tokens[:pos+1] {
		binary.Write(h, binary.LittleEndian, tok)
		for _, s := range p.Spans {
			if s.Start <= i && i < s.End() {
				fmt.Fprint(h, s)
			}
		}
	}
	n := d.Tensors[tensor].RowBytes()
	if n == 0 {
		n = 100 + pos%50
	}
	out := make([]byte, n)
	x := h.Sum64() | 1
	for i := range out {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		out[i] = byte(x)
		if d.Tensors[tensor].DType == kv.F16 && i%2 == 1 {
			out[i] = 0x38 | out[i]&0x83 // finite, of one magnitude
		}
	}
	return out
}

// Filled returns right rows for the positions [first, end) of every tensor, and the state at end.
func Filled(d kv.Descriptor, p *kv.Prompt, first, end int) kv.Rows {
	rows := make(kv.Rows, len(d.Tensors))
	for i, t := range d.Tensors {
		if d.Groups != nil && d.Groups[t.Group].Kind == kv.StateAt {
			rows[i] = kv.Packed(end, 1, Truth(d, p, i, end-1))
			continue
		}
		mem := make([]byte, 0, (end-first)*t.RowBytes())
		for pos := first; pos < end; pos++ {
			mem = append(mem, Truth(d, p, i, pos)...)
		}
		rows[i] = kv.Packed(first, end-first, mem)
	}
	return rows
}

// Empty returns memory for n positions, full of rubbish.
func Empty(d kv.Descriptor, n int) kv.Rows {
	rows := make(kv.Rows, len(d.Tensors))
	for i, t := range d.Tensors {
		size := n * t.RowBytes()
		count := n
		if d.Groups != nil && d.Groups[t.Group].Kind == kv.StateAt {
			size, count = 200, 1
			if t.Width > 0 {
				size = t.RowBytes()
			}
		}
		mem := make([]byte, size)
		for j := range mem {
			mem[j] = 0xA5
		}
		rows[i] = kv.Packed(0, count, mem)
	}
	return rows
}

// CheckRows compares what a restore of n tokens left in rows with the truth.
func CheckRows(t testing.TB, d kv.Descriptor, p *kv.Prompt, rows kv.Rows, n int) {
	t.Helper()
	for i, tensor := range d.Tensors {
		group := kv.Group{Kind: kv.All}
		if d.Groups != nil {
			group = d.Groups[tensor.Group]
		}
		mem := rows[i].Pieces[0].Mem
		if group.Kind == kv.StateAt {
			want := make([]byte, 0)
			if n > 0 {
				want = Truth(d, p, i, n-1)
			}
			if n > 0 && string(mem[:len(want)]) != string(want) {
				t.Fatalf("state at %d is wrong", n)
			}
			continue
		}
		size := tensor.RowBytes()
		for pos := range rows[i].Count() {
			got := mem[pos*size : (pos+1)*size]
			switch {
			case pos >= n:
				for _, b := range got {
					if b != 0 {
						t.Fatalf("tensor %d row %d beyond the %d restored tokens is not zero", i, pos, n)
					}
				}
			case group.Kind == kv.Window && pos < n-group.Window:
			case string(got) != string(Truth(d, p, i, pos)):
				t.Fatalf("tensor %d row %d of %d is wrong", i, pos, n)
			}
		}
	}
}
