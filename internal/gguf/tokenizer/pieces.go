package tokenizer

import (
	"container/heap"
	"fmt"
	"strings"
	"unicode/utf8"
)

// pieces is SentencePiece as llama.cpp has it: of all neighbours that together are a token, those with the highest score are joined first,
// of equals the leftmost. What is no token in the end is written as bytes.
func (t *Tokenizer) pieces(out []int32, text string, afterSpecial bool) ([]int32, error) {
	if t.spacePrefix && afterSpecial {
		text = " " + text
	}
	text = strings.ReplaceAll(text, " ", "\u2581")
	var symbols []symbol
	for at := 0; at < len(text); {
		_, n := utf8.DecodeRuneInString(text[at:])
		symbols = append(symbols, symbol{text: text[at : at+n], prev: len(symbols) - 1, next: len(symbols) + 1})
		at += n
	}
	var queue pairs
	try := func(left, right int) {
		if left < 0 || right >= len(symbols) {
			return
		}
		joined := symbols[left].text + symbols[right].text
		if id, ok := t.ids[joined]; ok {
			heap.Push(&queue, pair{left, right, t.scores[id], len(joined)})
		}
	}
	for i := range symbols {
		try(i, i+1)
	}
	for queue.Len() > 0 {
		p := heap.Pop(&queue).(pair)
		l, r := &symbols[p.left], &symbols[p.right]
		if l.text == "" || r.text == "" || len(l.text)+len(r.text) != p.bytes {
			continue // one of them was joined with another
		}
		l.text += r.text
		r.text = ""
		if l.next = r.next; l.next < len(symbols) {
			symbols[l.next].prev = p.left
		}
		try(l.prev, p.left)
		try(p.left, l.next)
	}
	for i := 0; i < len(symbols); i = symbols[i].next {
		s := symbols[i].text
		if id, ok := t.ids[s]; ok {
			out = append(out, id)
			continue
		}
		for _, b := range []byte(s) {
			id, ok := t.ids[fmt.Sprintf("<0x%02X>", b)]
			if !ok {
				id, ok = t.ids[string([]byte{b})]
			}
			if !ok {
				return nil, fmt.Errorf("the vocabulary has no token for the byte %#02x", b)
			}
			out = append(out, id)
		}
	}
	return out, nil
}

type symbol struct {
	text       string // empty: joined to the one before
	prev, next int
}

type pair struct {
	left, right int
	score       float32
	bytes       int
}

// pairs is a heap, the best first.
type pairs []pair

func (q pairs) Len() int { return len(q) }
func (q pairs) Less(i, j int) bool {
	return q[i].score > q[j].score || q[i].score == q[j].score && q[i].left < q[j].left
}
func (q pairs) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *pairs) Push(x any)   { *q = append(*q, x.(pair)) }
func (q *pairs) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}
