package crashtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/kv"
)

// What rows are right: a function of the model and of all tokens, spans and adapters up to their position.

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
		if groupOf(&d, t).Kind == kv.StateAt {
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
		if groupOf(&d, t).Kind == kv.StateAt {
			size, count = 200, 1
			if t.Width > 0 {
				size = t.RowBytes()
			}
		}
		rows[i] = kv.Packed(0, count, bytes.Repeat([]byte{0xA5}, size))
	}
	return rows
}

// ErrWrongRow is the one error that no fault of the disk excuses.
var ErrWrongRow = errors.New("wrong row")

// Check compares what a restore of n tokens left in rows that Empty gave with what is right: the rows before n, of a window its last ones
// and zeros behind it, and the state at n.
func Check(d kv.Descriptor, p *kv.Prompt, rows kv.Rows, n int) error {
	return check(d, p, rows, n, func(i, first int) (mem []byte) {
		truths(d, p, i, first, n, func(_ int, row []byte) { mem = append(mem, row...) })
		return mem
	})
}

// check has the right rows [first, n) of a tensor from right.
func check(d kv.Descriptor, p *kv.Prompt, rows kv.Rows, n int, right func(tensor, first int) []byte) error {
	for i, tensor := range d.Tensors {
		mem, group, size, first := rows[i].Pieces[0].Mem, groupOf(&d, tensor), tensor.RowBytes(), 0
		switch group.Kind {
		case kv.StateAt:
			if n > 0 && !bytes.HasPrefix(mem, Truth(d, p, i, n-1)) {
				return fmt.Errorf("%w: the state at %d", ErrWrongRow, n)
			}
			continue
		case kv.Window:
			first = max(0, n-group.Window)
		}
		if beyond := mem[n*size:]; len(bytes.Trim(beyond, "\x00")) > 0 {
			return fmt.Errorf("%w: rows of tensor %d beyond the %d restored tokens are not zero", ErrWrongRow, i, n)
		}
		want := right(i, first)
		for pos := first; pos < n; pos++ {
			if at := (pos - first) * size; !bytes.Equal(mem[pos*size:(pos+1)*size], want[at:at+size]) {
				return fmt.Errorf("%w: tensor %d row %d of %d", ErrWrongRow, i, pos, n)
			}
		}
	}
	return nil
}

func groupOf(d *kv.Descriptor, t kv.Tensor) kv.Group {
	if d.Groups == nil {
		return kv.Group{Kind: kv.All}
	}
	return d.Groups[t.Group]
}
