package crashtest

import (
	"encoding/binary"

	"github.com/dormousekv/dormouse/kv"
)

// Chat is one conversation, whose rows are computed once.
type Chat struct {
	Prompt kv.Prompt
	Model  kv.Descriptor
	Find   map[[16]byte]int // bytes that show tokens or rows, by the position they are of
	mem    [][]byte         // by tensor: the right rows of all positions
}

// NewChat computes the rows of a conversation, of which the tokens behind position own are in no other one.
func NewChat(d kv.Descriptor, p kv.Prompt, own int) *Chat {
	x := &Chat{Model: d, Prompt: p, Find: map[[16]byte]int{}, mem: make([][]byte, len(d.Tensors))}
	for i, tensor := range d.Tensors {
		if groupOf(&d, tensor).Kind == kv.StateAt {
			continue
		}
		truths(d, &p, i, 0, len(p.Tokens), func(pos int, row []byte) {
			x.mem[i] = append(x.mem[i], row...)
			if len(row) >= 16 && pos > own {
				x.Find[[16]byte(row)] = pos
			}
		})
	}
	for pos := max(own+5, 3); pos < len(p.Tokens); pos++ {
		var b []byte
		for _, tok := range p.Tokens[pos-3 : pos+1] {
			b = binary.LittleEndian.AppendUint32(b, uint32(tok))
		}
		x.Find[[16]byte(b)] = pos
	}
	return x
}

// Rows are the right rows of the positions [first, end), and the state at end.
func (x *Chat) Rows(first, end int) kv.Rows {
	rows := make(kv.Rows, len(x.Model.Tensors))
	for i, tensor := range x.Model.Tensors {
		if groupOf(&x.Model, tensor).Kind == kv.StateAt {
			rows[i] = kv.Packed(end, 1, Truth(x.Model, &x.Prompt, i, end-1))
			continue
		}
		n := tensor.RowBytes()
		rows[i] = kv.Packed(first, end-first, x.mem[i][first*n:end*n])
	}
	return rows
}

// Room is memory for the rows of the whole conversation, full of rubbish.
func (x *Chat) Room() kv.Rows { return Empty(x.Model, len(x.Prompt.Tokens)) }

// Check is the function of that name.
func (x *Chat) Check(rows kv.Rows, restored int) error {
	return check(x.Model, &x.Prompt, rows, restored, func(i, first int) []byte {
		n := x.Model.Tensors[i].RowBytes()
		return x.mem[i][first*n : restored*n]
	})
}
