package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"

	"github.com/dormousekv/dormouse/internal/tiny"
)

// reference is the conversation as a list of tokens, and who sees whom. It computes everything by itself.
type reference struct {
	m      *tiny.Model
	cache  *tiny.Cache
	tokens []int32
	parts  []refPart
	wait   []refPart // facts that the next turn places; without tokens: removals
	turns  int       // begun
	sees   []bool    // of the last turn, by position before it
	scores []float32

	evicted, masked int // turns that went; times that one was in the cache and not seen
}

type refPart struct {
	kind, name string
	id         int
	start, end int
	gone       bool
	tokens     []int32 // of what waits
}

func newReference(m *tiny.Model, system []int32) *reference {
	r := &reference{m: m, cache: m.NewCache(4096)}
	r.put(refPart{kind: "system", tokens: system}, nil)
	return r
}

// put computes a part, whose tokens see the positions that sees says, and those of the part before them.
func (r *reference) put(p refPart, sees []bool) {
	p.start, p.end = len(r.tokens), len(r.tokens)
	tokens := p.tokens
	p.tokens = nil
	r.parts = append(r.parts, p)
	r.extend(sees, tokens...)
}

// extend computes more tokens of the last part.
func (r *reference) extend(sees []bool, tokens ...int32) {
	p := &r.parts[len(r.parts)-1]
	v := tiny.NewVisible(len(r.tokens) + len(tokens))
	for pos := range r.tokens {
		if pos >= p.start || sees[pos] {
			v.Set(pos, pos)
		}
	}
	for _, t := range tokens {
		pos := len(r.tokens)
		v.Set(pos, pos)
		r.scores = r.m.Decode(r.cache, []tiny.Step{{Token: t, Pos: pos, Row: pos, Sees: v, Logits: true}})[0]
		r.tokens = append(r.tokens, t)
	}
	p.end = len(r.tokens)
}

// view is the positions of the parts that in says yes to. The first four and the last position are in every view.
func (r *reference) view(in func(p refPart) bool) []bool {
	see := make([]bool, len(r.tokens))
	for _, p := range r.parts {
		if !p.gone && in(p) {
			for pos := p.start; pos < p.end; pos++ {
				see[pos] = true
			}
		}
	}
	for pos := range see {
		if pos < 4 || pos == len(see)-1 {
			see[pos] = true
		}
	}
	return see
}

func stays(p refPart) bool { return p.kind != "turn" }

func (r *reference) setFact(name string, tokens []int32) {
	r.wait = slices.DeleteFunc(r.wait, func(f refPart) bool { return f.name == name })
	r.wait = append(r.wait, refPart{kind: "fact", name: name, tokens: tokens})
}

// facts are those that the next turn sees.
func (r *reference) facts() (fs []refPart) {
	for _, p := range r.parts {
		if p.kind == "fact" && !p.gone {
			p.tokens = slices.Clone(r.tokens[p.start:p.end])
			fs = append(fs, p)
		}
	}
	for _, f := range r.wait {
		fs = slices.DeleteFunc(fs, func(g refPart) bool { return g.name == f.name })
		if len(f.tokens) > 0 {
			fs = append(fs, f)
		}
	}
	return fs
}

// begin makes room in the ring, places the facts that wait, and computes a message.
func (r *reference) begin(message []int32, reserve, recent int) {
	for {
		sum, first := 0, -1
		for i, p := range r.parts {
			if p.kind == "turn" && !p.gone {
				if sum += p.end - p.start; first < 0 {
					first = i
				}
			}
		}
		if sum+len(message)+reserve <= ringTokens {
			break
		}
		r.parts[first].gone = true
		r.evicted++
	}
	for _, f := range r.wait {
		for i := range r.parts {
			if p := &r.parts[i]; p.kind == "fact" && p.name == f.name {
				p.gone = true
			}
		}
		if len(f.tokens) > 0 {
			r.put(f, r.view(stays))
		}
	}
	r.wait = nil
	var turns []int
	for _, p := range r.parts {
		if p.kind == "turn" && !p.gone {
			turns = append(turns, p.id)
		}
	}
	if recent > 0 {
		hidden := max(0, len(turns)-recent)
		r.masked += hidden
		turns = turns[hidden:]
	}
	r.turns++
	r.sees = r.view(func(p refPart) bool { return stays(p) || slices.Contains(turns, p.id) })
	r.put(refPart{kind: "turn", id: r.turns, tokens: message}, r.sees)
}

// answer continues the last turn with the likeliest words.
func (r *reference) answer(n int) (said []int32) {
	for range n {
		w := likeliest(r.scores)
		said = append(said, w)
		r.extend(r.sees, w)
	}
	return said
}

// rewind takes back the last n turns.
func (r *reference) rewind(n int) {
	i := len(r.parts)
	for ; n > 0; n-- {
		for i--; r.parts[i].kind != "turn"; i-- {
		}
	}
	var back []refPart
	for _, p := range r.parts[i:] {
		if p.kind == "fact" && !p.gone {
			p.tokens = slices.Clone(r.tokens[p.start:p.end])
			back = append(back, p)
		}
	}
	r.wait = append(back, r.wait...)
	r.tokens, r.parts = r.tokens[:r.parts[i].start], r.parts[:i]
}

// rewrite lays everything out anew: the system prompt, the facts, the turns that are not evicted, each seeing all before it.
func (r *reference) rewrite() {
	old, tokens, facts := r.parts, r.tokens, r.facts()
	r.cache, r.tokens, r.parts, r.wait = r.m.NewCache(4096), nil, nil, nil
	all := func() []bool { return slices.Repeat([]bool{true}, len(r.tokens)) }
	for _, p := range old {
		if p.kind == "system" {
			r.put(refPart{kind: "system", tokens: tokens[p.start:p.end]}, nil)
		}
	}
	for _, f := range facts {
		r.put(f, all())
	}
	for _, p := range old {
		if p.kind == "turn" && !p.gone {
			p.tokens = tokens[p.start:p.end]
			r.put(p, all())
		}
	}
}

// without computes the last turn's message again with one fact hidden: a control, that must differ.
func (r *reference) without(fact string) []float32 {
	p := r.parts[len(r.parts)-1]
	sees := slices.Clone(r.sees)
	for _, f := range r.parts {
		if f.kind == "fact" && f.name == fact {
			for pos := f.start; pos < f.end; pos++ {
				sees[pos] = false
			}
		}
	}
	c := &reference{m: r.m, cache: r.cache, tokens: slices.Clone(r.tokens[:p.start])}
	c.put(refPart{kind: "turn", tokens: slices.Clone(r.tokens[p.start:p.end])}, sees)
	return c.scores
}

func likeliest(scores []float32) int32 {
	best := 0
	for i, s := range scores {
		if s > scores[best] {
			best = i
		}
	}
	return int32(best)
}

// sum names scores by all their bits.
func sum(scores []float32) string {
	h := sha256.New()
	for _, s := range scores {
		h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(s)))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
