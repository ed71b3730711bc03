package crashtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/kv"
)

// Chat is one conversation.
type Chat struct {
	Prompt kv.Prompt
	Model  kv.Descriptor
	Find   map[[16]byte]int // bytes that show tokens or rows, by the position they are of
	mem    [][]byte         // by tensor: the right rows of all positions
	hash   []uint64         // by position: of the tokens up to it
}

// NewChat computes the rows of a conversation, of which the tokens behind position own are in no other one.
func NewChat(d kv.Descriptor, p kv.Prompt, own int) *Chat {
	x := &Chat{Model: d, Prompt: p, Find: map[[16]byte]int{}}
	mix := func(h, x uint64) uint64 {
		h = (h ^ x) * 0x9e3779b97f4a7c15
		return h ^ h>>29
	}
	x.mem = make([][]byte, len(x.Model.Tensors))
	h := uint64(1)
	for pos, tok := range x.Prompt.Tokens {
		h = mix(h, uint64(tok)+1)
		x.hash = append(x.hash, h)
		for i, tensor := range x.Model.Tensors {
			at := len(x.mem[i])
			y := mix(h, uint64(i)+77)
			for range tensor.RowBytes() / 8 {
				y = mix(y, 3)
				x.mem[i] = binary.LittleEndian.AppendUint64(x.mem[i], y&0x83ff83ff83ff83ff|0x3800380038003800)
			}
			if row := x.mem[i][at:]; len(row) >= 16 && pos > own {
				x.Find[[16]byte(row)] = pos
			}
		}
		if pos > own+4 {
			var b []byte
			for _, tok := range x.Prompt.Tokens[pos-3 : pos+1] {
				b = binary.LittleEndian.AppendUint32(b, uint32(tok))
			}
			x.Find[[16]byte(b)] = pos
		}
	}
	return x
}

// State is what a runtime's opaque state after n tokens is.
func (x *Chat) State(n int) []byte {
	var b []byte
	for h := x.hash[n-1]; len(b) < 96+n%30; h = h*0x9e3779b97f4a7c15 + 1 {
		b = binary.LittleEndian.AppendUint64(b, h)
	}
	return b[:96+n%30]
}

// Rows are the right rows of the positions [first, end), and the state at end.
func (x *Chat) Rows(first, end int) kv.Rows {
	rows := make(kv.Rows, len(x.Model.Tensors))
	for i, tensor := range x.Model.Tensors {
		if x.Model.Groups[tensor.Group].Kind == kv.StateAt {
			rows[i] = kv.Packed(end, 1, x.State(end))
			continue
		}
		n := tensor.RowBytes()
		rows[i] = kv.Packed(first, end-first, x.mem[i][first*n:end*n])
	}
	return rows
}

// Room is memory for the rows of the whole conversation, full of rubbish.
func (x *Chat) Room() kv.Rows {
	n := len(x.Prompt.Tokens)
	rows := make(kv.Rows, len(x.Model.Tensors))
	for i, tensor := range x.Model.Tensors {
		count, size := n, n*tensor.RowBytes()
		if x.Model.Groups[tensor.Group].Kind == kv.StateAt {
			count, size = 1, 200
		}
		rows[i] = kv.Packed(0, count, bytes.Repeat([]byte{0xA5}, size))
	}
	return rows
}

// ErrWrongRow is the one error that no fault of the disk excuses.
var ErrWrongRow = errors.New("wrong row")

// Check compares what a restore of so many tokens left in rows that Room gave.
func (x *Chat) Check(rows kv.Rows, restored int) error {
	n := len(x.Prompt.Tokens)
	for i, tensor := range x.Model.Tensors {
		mem, group := rows[i].Pieces[0].Mem, x.Model.Groups[tensor.Group]
		if group.Kind == kv.StateAt {
			if restored > 0 && !bytes.HasPrefix(mem, x.State(restored)) {
				return fmt.Errorf("%w: the state at %d", ErrWrongRow, restored)
			}
			continue
		}
		size := tensor.RowBytes()
		right := make([]byte, n*size)
		copy(right, x.mem[i][:restored*size])
		from := 0
		if group.Kind == kv.Window {
			from = max(0, restored-group.Window) * size
		}
		if !bytes.Equal(mem[from:], right[from:]) {
			for pos := from / size; pos < n; pos++ {
				if !bytes.Equal(mem[pos*size:(pos+1)*size], right[pos*size:(pos+1)*size]) {
					return fmt.Errorf("%w: tensor %d row %d of %d", ErrWrongRow, i, pos, restored)
				}
			}
		}
	}
	return nil
}
