package storetest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// Truth returns the right row of a tensor at position pos of p. Scope does not matter: it changes no computation.
func Truth(d kv.Descriptor, p *kv.Prompt, tensor, pos int) []byte {
	var row []byte
	truths(d, p, tensor, pos, pos+1, func(_ int, b []byte) { row = b })
	return row
}

// truths calls each with the right row of the positions [first, end) of a tensor, one after the other.
func truths(d kv.Descriptor, p *kv.Prompt, tensor, first, end int, each func(pos int, row []byte)) {
	h := fnv1a(14695981039346656037).add(fmt.Append(nil, tensor, d.Weights, p.Adapters))
	for pos := range end { // a row depends on all tokens up to its own
		h = h.add(binary.LittleEndian.AppendUint32(make([]byte, 0, 4), uint32(p.Tokens[pos])))
		for _, s := range p.Spans {
			if s.Start <= pos && pos < s.End() {
				h = h.add(fmt.Append(nil, s))
			}
		}
		if pos >= first {
			each(pos, row(d.Tensors[tensor], uint64(h), pos))
		}
	}
}

// fnv1a is the state of a hash/fnv.New64a, which can be gone on from at each position.
type fnv1a uint64

func (h fnv1a) add(b []byte) fnv1a {
	for _, x := range b {
		h = (h ^ fnv1a(x)) * 1099511628211
	}
	return h
}

func row(t kv.Tensor, hash uint64, pos int) []byte {
	n := t.RowBytes()
	if n == 0 {
		n = 100 + pos%50
	}
	out := make([]byte, n)
	x := hash | 1
	for i := range out {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		out[i] = byte(x)
		if t.DType == kv.F16 && i%2 == 1 {
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
		truths(d, p, i, first, end, func(_ int, row []byte) { mem = append(mem, row...) })
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
		if beyond := mem[n*tensor.RowBytes():]; len(bytes.Trim(beyond, "\x00")) > 0 {
			t.Fatalf("rows of tensor %d beyond the %d restored tokens are not zero", i, n)
		}
		first := 0
		if group.Kind == kv.Window {
			first = max(0, n-group.Window)
		}
		truths(d, p, i, first, n, func(pos int, row []byte) {
			if !bytes.Equal(mem[pos*len(row):(pos+1)*len(row)], row) {
				t.Fatalf("tensor %d row %d of %d is wrong", i, pos, n)
			}
		})
	}
}
