package db

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/dormousekv/dormouse/kv"
)

// crashChat is one conversation.
type crashChat struct {
	p    kv.Prompt
	d    kv.Descriptor
	mem  [][]byte         // by tensor: the right rows of all positions
	hash []uint64         // by position: of the tokens up to it
	find map[[16]byte]int // bytes that show tokens or rows, by the position they are of
}

// crashSystem is how many tokens all conversations begin with: two whole blocks and a half.
const (
	crashSystem = 40
	crashBlock  = 16
)

// crashChats are the conversations: of three models, in three scopes.
var crashChats = sync.OnceValue(func() []*crashChat {
	models := []kv.Descriptor{plain(), windowed(40), opaque()}
	var chats []*crashChat
	for c := range 6 {
		d, _ := models[[]int{0, 1, 0, 1, 0, 2}[c]].Normal()
		p := kv.Prompt{Tokens: concat(tokens(1, crashSystem), []kv.Token{kv.Token(5000 + c)}, tokens(100+c, 50+c*11))}
		if scope := []string{"", "alice", "bob"}[c%3]; scope != "" {
			p.Scope, p.ScopeStart = scope, crashSystem
		}
		chats = append(chats, newCrashChat(d, p, crashSystem))
	}
	return chats
})

// newCrashChat computes the rows of a conversation, of which the tokens behind position own are in no other one.
func newCrashChat(d kv.Descriptor, p kv.Prompt, own int) *crashChat {
	x := &crashChat{d: d, p: p, find: map[[16]byte]int{}}
	mix := func(h, x uint64) uint64 {
		h = (h ^ x) * 0x9e3779b97f4a7c15
		return h ^ h>>29
	}
	x.mem = make([][]byte, len(x.d.Tensors))
	h := uint64(1)
	for pos, tok := range x.p.Tokens {
		h = mix(h, uint64(tok)+1)
		x.hash = append(x.hash, h)
		for i, tensor := range x.d.Tensors {
			at := len(x.mem[i])
			y := mix(h, uint64(i)+77)
			for range tensor.RowBytes() / 8 {
				y = mix(y, 3)
				x.mem[i] = binary.LittleEndian.AppendUint64(x.mem[i], y&0x83ff83ff83ff83ff|0x3800380038003800)
			}
			if row := x.mem[i][at:]; len(row) >= 16 && pos > own {
				x.find[[16]byte(row)] = pos
			}
		}
		if pos > own+4 {
			var b []byte
			for _, tok := range x.p.Tokens[pos-3 : pos+1] {
				b = binary.LittleEndian.AppendUint32(b, uint32(tok))
			}
			x.find[[16]byte(b)] = pos
		}
	}
	return x
}

// state is what a runtime's opaque state after n tokens is.
func (x *crashChat) state(n int) []byte {
	var b []byte
	for h := x.hash[n-1]; len(b) < 96+n%30; h = h*0x9e3779b97f4a7c15 + 1 {
		b = binary.LittleEndian.AppendUint64(b, h)
	}
	return b[:96+n%30]
}

// rows are the right rows of the positions [first, end), and the state at end.
func (x *crashChat) rows(first, end int) kv.Rows {
	rows := make(kv.Rows, len(x.d.Tensors))
	for i, tensor := range x.d.Tensors {
		if x.d.Groups[tensor.Group].Kind == kv.StateAt {
			rows[i] = kv.Packed(end, 1, x.state(end))
			continue
		}
		n := tensor.RowBytes()
		rows[i] = kv.Packed(first, end-first, x.mem[i][first*n:end*n])
	}
	return rows
}

// restore restores the longest stored prefix and compares every row.
func (x *crashChat) restore(m *Model) (int, error) {
	match, err := m.Match(ctx, x.p, MatchOptions{})
	if err != nil {
		return 0, err
	}
	defer match.Close()
	return x.check(match)
}

// errWrongRow is the one error that no fault of the disk excuses.
var errWrongRow = errors.New("wrong row")

func (x *crashChat) check(match *Match) (int, error) {
	n := len(x.p.Tokens)
	rows := empty(x.d, n)
	got, err := match.Restore(ctx, rows)
	if err != nil {
		return 0, err
	}
	for i, tensor := range x.d.Tensors {
		mem, group := rows[i].Pieces[0].Mem, x.d.Groups[tensor.Group]
		if group.Kind == kv.StateAt {
			if got.Tokens > 0 && !bytes.HasPrefix(mem, x.state(got.Tokens)) {
				return 0, fmt.Errorf("%w: the state at %d", errWrongRow, got.Tokens)
			}
			continue
		}
		size := tensor.RowBytes()
		right := make([]byte, n*size)
		copy(right, x.mem[i][:got.Tokens*size])
		from := 0
		if group.Kind == kv.Window {
			from = max(0, got.Tokens-group.Window) * size
		}
		if !bytes.Equal(mem[from:], right[from:]) {
			for pos := from / size; pos < n; pos++ {
				if !bytes.Equal(mem[pos*size:(pos+1)*size], right[pos*size:(pos+1)*size]) {
					return 0, fmt.Errorf("%w: tensor %d row %d of %d", errWrongRow, i, pos, got.Tokens)
				}
			}
		}
	}
	return got.Tokens, nil
}
