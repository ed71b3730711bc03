package layout

import (
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// Part is the positions [From, To) of a prefix of Tokens tokens, as one state. Of the window layers it has those rows that
// lie among the last WindowRows of the prefix.
type Part struct {
	From, To, Tokens int
	WindowRows       int
	Sequence         int // the state's own sequence
}

// Alone is the part of a prefix that has no rows behind it, with all rows of the window layers.
func Alone(from, to, sequence int) Part { return Part{from, to, to, to - from, sequence} }

// PartBytes is the length of the state of a part.
func (lay *Layout) PartBytes(p Part) int { return lay.size(lay.cells(p), p.To == p.Tokens) }

// EmptyBytes is the length of the state of a sequence without cells.
func (lay *Layout) EmptyBytes() int {
	return lay.size(make([]state.Cells, len(lay.Format.Sections)), false)
}

// Build lays out the state of a part in memory of PartBytes bytes, and describes the rows that belong into it. The
// recurrent state of a hybrid comes with the part that ends the prefix.
func (lay *Layout) Build(buf []byte, p Part) (*state.State, kv.Rows, []byte) {
	st, blob := lay.Format.Build(buf, int32(p.Sequence), lay.cells(p))
	rows := lay.Rows(st)
	if lay.Recurrent == nil {
		return st, rows, blob
	}
	tail := buf[len(blob):]
	if p.To < p.Tokens {
		copy(tail, lay.Recurrent.Empty())
		return st, append(rows, kv.TensorRows{}), buf
	}
	return st, append(rows, kv.Packed(p.Tokens, 1, tail)), buf
}

// cells are those of the state of a part, section by section.
func (lay *Layout) cells(p Part) []state.Cells {
	out := make([]state.Cells, len(lay.Format.Sections))
	for i, s := range lay.Format.Sections {
		stream := 0
		if s.Streams > 1 {
			stream = p.Sequence
		}
		first := p.From
		if i == Window {
			first = min(p.To, max(p.From, p.Tokens-p.WindowRows))
		}
		out[i] = state.Span(stream, first, p.To-first)
	}
	return out
}

// size is the length of a state with these cells; of a hybrid with its recurrent state, or with that of no token.
func (lay *Layout) size(cells []state.Cells, withState bool) int {
	n := lay.Format.Size(cells)
	switch {
	case lay.Recurrent == nil:
	case withState:
		n += lay.Recurrent.Size()
	default:
		n += len(lay.Recurrent.Empty())
	}
	return n
}
