//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/kv"
)

// list is a conversation as a list of tokens and of who sees whom. It computes everything on a context of its own, and stores nothing: its
// rows lie in sequence 0, and a part is computed in sequence 1, which has the rows that it sees.
type list struct {
	rt          chat.Runtime
	facts, ring int
	tokens      []kv.Token
	items       []item
	wait        []item // facts that the next turn places; without tokens: removals
	sees        []bool // of the last turn
	scores      []float32
}

type item struct {
	kind, name string
	id         uint64
	start, end int
	gone       bool
	tokens     []kv.Token // of what waits
}

var all = kv.Range{Start: 0, End: math.MaxInt32}

func (l *list) put(ctx context.Context, p item, sees []bool) error {
	p.start, p.end = len(l.tokens), len(l.tokens)
	tokens := p.tokens
	p.tokens = nil
	l.items = append(l.items, p)
	return l.extend(ctx, sees, tokens...)
}

func (l *list) extend(ctx context.Context, sees []bool, tokens ...kv.Token) error {
	if len(tokens) == 0 {
		return nil
	}
	p, n := &l.items[len(l.items)-1], len(l.tokens)
	if err := l.rt.Remove(1, all); err != nil {
		return err
	}
	for pos := 0; pos < n; pos++ {
		if end := pos; pos >= p.start || sees[pos] {
			for end < n && (end >= p.start || sees[end]) {
				end++
			}
			if err := l.rt.Copy(0, 1, kv.Range{Start: pos, End: end}); err != nil {
				return err
			}
			pos = end
		}
	}
	var steps []kv.Step
	for i, t := range tokens {
		steps = append(steps, kv.Step{Token: t, Pos: n + i, Seq: 1, Logits: i == len(tokens)-1})
	}
	if err := l.rt.Decode(ctx, steps); err != nil {
		return err
	}
	l.scores = slices.Clone(l.rt.Logits(len(steps) - 1))
	l.tokens = append(l.tokens, tokens...)
	p.end = len(l.tokens)
	return l.rt.Copy(1, 0, kv.Range{Start: n, End: p.end})
}

// view is the positions of the items that in says yes to. The first four of the first item, but not all of a turn and none of a fact that is gone, and the last position are in every view.
func (l *list) view(in func(p item) bool) []bool {
	see := make([]bool, len(l.tokens))
	first := slices.IndexFunc(l.items, func(p item) bool { return p.end > p.start })
	for i, p := range l.items {
		for pos := p.start; pos < p.end; pos++ {
			see[pos] = !p.gone && in(p) || i == first && pos < 4 && !(p.gone && p.kind == "fact") && !(p.kind == "turn" && pos == p.end-1) || pos == len(see)-1
		}
	}
	return see
}

func stays(p item) bool { return p.kind != "turn" }

// set sets a fact, unless the next turn would see just that.
func (l *list) set(name string, tokens []kv.Token) {
	var now []kv.Token
	for _, p := range l.items {
		if p.kind == "fact" && p.name == name && !p.gone {
			now = l.tokens[p.start:p.end]
		}
	}
	for _, f := range l.wait {
		if f.name == name {
			now = f.tokens
		}
	}
	if slices.Equal(now, tokens) {
		return
	}
	l.wait = slices.DeleteFunc(l.wait, func(f item) bool { return f.name == name })
	l.wait = append(l.wait, item{kind: "fact", name: name, tokens: tokens})
}

func (l *list) begin(ctx context.Context, id uint64, message []kv.Token, room, recent int) error {
	for {
		sum, first := 0, -1
		for i, p := range l.items {
			if p.kind == "turn" && !p.gone {
				if sum += p.end - p.start; first < 0 {
					first = i
				}
			}
		}
		if sum+room <= l.ring {
			break
		}
		l.items[first].gone = true
	}
	for _, f := range l.wait {
		for i := range l.items {
			if p := &l.items[i]; p.kind == "fact" && p.name == f.name {
				p.gone = true
			}
		}
		if len(f.tokens) > 0 {
			if err := l.put(ctx, f, l.view(stays)); err != nil {
				return err
			}
		}
	}
	l.wait = nil
	var turns []uint64
	for _, p := range l.items {
		if p.kind == "turn" && !p.gone {
			turns = append(turns, p.id)
		}
	}
	turns = turns[max(0, len(turns)-recent):]
	l.sees = l.view(func(p item) bool { return stays(p) || slices.Contains(turns, p.id) })
	return l.put(ctx, item{kind: "turn", id: id, tokens: message}, l.sees)
}

// cut takes back item i and what follows it; facts wait again.
func (l *list) cut(i int) error {
	var back []item
	for _, p := range l.items[i:] {
		if p.kind == "fact" && !p.gone && !slices.ContainsFunc(l.wait, func(f item) bool { return f.name == p.name }) {
			p.tokens = slices.Clone(l.tokens[p.start:p.end])
			back = append(back, p)
		}
	}
	l.wait = append(back, l.wait...)
	start := l.items[i].start
	l.items, l.tokens = l.items[:i], l.tokens[:start]
	return l.rt.Remove(0, kv.Range{Start: start, End: all.End})
}

// rewrite lays everything out anew, each part seeing all before it.
func (l *list) rewrite(ctx context.Context) error {
	old, tokens := l.items, l.tokens
	var facts []item
	for _, p := range old {
		if p.kind == "fact" && !p.gone {
			p.tokens = tokens[p.start:p.end]
			facts = append(facts, p)
		}
	}
	for _, f := range l.wait {
		facts = slices.DeleteFunc(facts, func(g item) bool { return g.name == f.name })
		if len(f.tokens) > 0 {
			facts = append(facts, f)
		}
	}
	parts := []item{{kind: "system", tokens: tokens[:old[0].end]}}
	parts = append(parts, facts...)
	for _, p := range old {
		if p.kind == "turn" && !p.gone {
			p.tokens = tokens[p.start:p.end]
			parts = append(parts, p)
		}
	}
	l.items, l.tokens, l.wait = nil, nil, nil
	if err := l.rt.Remove(0, all); err != nil {
		return err
	}
	for _, p := range parts {
		if err := l.put(ctx, p, slices.Repeat([]bool{true}, len(l.tokens))); err != nil {
			return err
		}
	}
	return nil
}

// someTurn is the number of an item that is a turn, or 0.
func (l *list) someTurn(rnd *rand.Rand) int {
	var at []int
	for i, p := range l.items {
		if p.kind == "turn" {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return 0
	}
	return at[max(0, len(at)-1-rnd.IntN(6))]
}
