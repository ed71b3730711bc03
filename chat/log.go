package chat

import (
	"fmt"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// TurnID numbers the turns of a conversation from 1. A number is not used twice.
type TurnID uint64

// sinks is how many of the first positions every view has. Models put attention there that belongs nowhere else.
const sinks = 4

type kind uint8

const (
	systemPart kind = iota
	factPart
	turnPart
)

// part is a stretch of the log that was computed in one view.
type part struct {
	kind       kind
	start, end int
	view       []kv.Range // what lies before start and was visible, merged
	gone       bool       // of a fact: a newer one took its place, or it was removed; of a turn: evicted
	id         uint64     // of a turn: its TurnID; of a fact: the number of its SetFact
	name       string     // of a fact
	turn       turnNote
}

func (p *part) span() kv.Range { return kv.Range{Start: p.start, End: p.end} }

// turnNote is what the log keeps of a turn beside its tokens.
type turnNote struct {
	user      int // tokens of the message, the first ones
	spans     []kv.Span
	at        time.Time
	priority  int
	meta      []byte
	embedding []float32
}

// fact is one call of SetFact that is not in the log yet.
type fact struct {
	id     uint64
	name   string
	tokens []kv.Token // none: the fact is removed
}

// log is every token of a conversation in the order in which they were computed, hidden ones included.
type log struct {
	scope  string
	user   string // whose the system prompt is; empty: everybody's
	tokens []kv.Token
	spans  []kv.Span // images, and recipes where the visible set changes
	parts  []part    // the first one is the system prompt

	visible  []kv.Range // what the last token attended to, and itself
	pending  []fact     // set, and placed when the next turn begins
	lastTurn TurnID
	lastFact uint64
	meta     []byte
	roots    []kv.Prompt // first tokens behind the system prompt that rows were stored for, as prompts
}

func newLog(scope, user string, system []kv.Token) *log {
	l := &log{scope: scope, user: user}
	l.place(part{kind: systemPart}, system)
	return l
}

// system is the number of tokens that are no conversation's own.
func (l *log) system() int { return l.parts[0].end }

// prompt is the log as the store knows it. It shares the log's memory.
func (l *log) prompt() kv.Prompt {
	return kv.Prompt{Tokens: l.tokens, Spans: l.spans, Scope: l.scope, ScopeStart: l.system()}
}

// place appends a part, whose view is set. Where the visible set changes, the first token carries its hash: rows that were computed in
// another view have other keys.
func (l *log) place(p part, tokens []kv.Token) *part {
	p.start, p.end = len(l.tokens), len(l.tokens)+len(tokens)
	l.spans = append(l.spans, l.spansOf(&p)...)
	l.tokens = append(l.tokens, tokens...)
	if p.end > p.start {
		l.visible = merged(append(slices.Clone(p.view), p.span()))
	}
	l.parts = append(l.parts, p)
	if p.start == l.system() && p.end > p.start {
		l.root(p.start)
	}
	return &l.parts[len(l.parts)-1]
}

// spansOf returns the spans of a part that comes next.
func (l *log) spansOf(p *part) []kv.Span {
	spans := slices.Clone(p.turn.spans)
	for i := range spans {
		spans[i].Start += p.start
	}
	if p.kind == systemPart {
		if l.user != "" && p.end > p.start {
			spans = append(spans, kv.Span{Len: 1, Hash: kv.HashOf("dormouse user\x00" + l.user)})
		}
		return spans
	}
	if p.end == p.start || slices.Equal(p.view, l.visible) {
		return spans
	}
	if len(spans) > 0 && spans[0].Start == p.start {
		spans[0].Hash = recipe(p.view, &spans[0].Hash)
		return spans
	}
	return slices.Insert(spans, 0, kv.Span{Start: p.start, Len: 1, Hash: recipe(p.view, nil)})
}

// root notes the first token of the conversation's own as something that rows may be stored under.
func (l *log) root(start int) {
	whole := l.prompt()
	n := start + 1
	for whole.Clip(n) != n {
		n++
	}
	p := whole.Prefix(n)
	if !slices.ContainsFunc(l.roots, func(q kv.Prompt) bool { return samePrompt(p, q) }) {
		p.Tokens, p.Spans = slices.Clone(p.Tokens), slices.Clone(p.Spans)
		l.roots = append(l.roots, p)
	}
}

// othersRoots are those of turns and facts that were taken back.
func (l *log) othersRoots() []kv.Prompt {
	l2 := *l
	l2.keepRoot()
	return slices.DeleteFunc(slices.Clone(l.roots), func(p kv.Prompt) bool {
		return slices.ContainsFunc(l2.roots, func(q kv.Prompt) bool { return samePrompt(p, q) })
	})
}

// keepRoot drops all roots but that of the log as it is.
func (l *log) keepRoot() {
	l.roots = nil
	if n := l.system(); len(l.tokens) > n {
		l.root(n)
	}
}

func samePrompt(p, q kv.Prompt) bool {
	return slices.Equal(p.Tokens, q.Tokens) && slices.Equal(p.Spans, q.Spans)
}

// waiting counts the tokens of facts that the next turn places.
func (l *log) waiting() (n int) {
	for _, f := range l.pending {
		n += len(f.tokens)
	}
	return n
}

// always is what every view has: the first rows, and the last one, without which no runtime goes on. The first rows are the system prompt's, or without one
// those of the first fact or turn, also where that is hidden or evicted: but never all of a turn. Of a fact that is gone no view has a token.
func (l *log) always() []kv.Range {
	n, first := len(l.tokens), 0
	if i := slices.IndexFunc(l.parts, func(p part) bool { return p.end > p.start }); i >= 0 {
		switch p := &l.parts[i]; {
		case p.kind == turnPart:
			first = min(sinks, p.end-1)
		case !p.gone:
			first = min(sinks, p.end)
		}
	}
	return []kv.Range{{Start: 0, End: first}, {Start: max(0, n-1), End: n}}
}

// factView is what a fact is computed in: the system prompt and the facts.
func (l *log) factView() []kv.Range {
	rs := l.always()
	for i := range l.parts {
		if p := &l.parts[i]; p.kind == systemPart || p.kind == factPart && !p.gone {
			rs = append(rs, p.span())
		}
	}
	return merged(rs)
}

// turnView is the facts and the turns that see says yes to.
func (l *log) turnView(see func(TurnID) bool) []kv.Range {
	rs := l.factView()
	for i := range l.parts {
		if p := &l.parts[i]; p.kind == turnPart && !p.gone && see(TurnID(p.id)) {
			rs = append(rs, p.span())
		}
	}
	return merged(rs)
}

// live is what must be in the cache for any view that may come.
func (l *log) live() []kv.Range { return l.turnView(func(TurnID) bool { return true }) }

// sizes are the tokens of the system prompt and the facts that are not gone, and of the turns that are not.
func (l *log) sizes() (facts, turns int) {
	for i := range l.parts {
		switch p := &l.parts[i]; {
		case p.gone:
		case p.kind == turnPart:
			turns += p.end - p.start
		default:
			facts += p.end - p.start
		}
	}
	return facts, turns
}

// turn finds a turn's part.
func (l *log) turn(id TurnID) (int, error) {
	for i := range l.parts {
		if p := &l.parts[i]; p.kind == turnPart && p.id == uint64(id) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%w: %d", ErrNoTurn, id)
}

// supersede takes a fact out of view.
func (l *log) supersede(name string) {
	for i := range l.parts {
		if p := &l.parts[i]; p.kind == factPart && p.name == name {
			p.gone = true
		}
	}
}

// set notes a fact that the next turn places. One of that name that waits is replaced.
func (l *log) set(f fact) {
	l.pending = slices.DeleteFunc(l.pending, func(g fact) bool { return g.name == f.name })
	l.pending = append(l.pending, f)
	l.lastFact = max(l.lastFact, f.id)
}

// settle places facts, and takes those out of view that are removed.
func (l *log) settle(facts []fact) {
	for _, f := range facts {
		l.supersede(f.name)
		if len(f.tokens) > 0 {
			l.place(part{kind: factPart, id: f.id, name: f.name, view: l.factView()}, f.tokens)
		}
	}
}

// evict takes turns out for good.
func (l *log) evict(ids []TurnID) {
	for _, id := range ids {
		if i, err := l.turn(id); err == nil {
			l.parts[i].gone = true
		}
	}
}

// cut takes back all parts from number i on. Facts among them wait to be placed again.
func (l *log) cut(i int) {
	start := l.parts[i].start
	var back []fact
	for _, p := range l.parts[i:] {
		if p.kind == factPart && !p.gone && !slices.ContainsFunc(l.pending, func(f fact) bool { return f.name == p.name }) {
			back = append(back, fact{p.id, p.name, slices.Clone(l.tokens[p.start:p.end])})
		}
	}
	l.pending = append(back, l.pending...)
	l.parts = slices.Delete(l.parts, i, len(l.parts))
	l.tokens = l.tokens[:start:start]
	l.spans = slices.DeleteFunc(slices.Clone(l.spans), func(s kv.Span) bool { return s.Start >= start })
	l.visible = nil
	for j := len(l.parts) - 1; j >= 0; j-- {
		if p := &l.parts[j]; p.end > p.start {
			l.visible = merged(append(slices.Clone(p.view), p.span()))
			break
		}
	}
}

// compact is the log that a rewrite makes: the system prompt, the facts and the turns that are not gone, each seeing all before it. Facts that
// wait are in it.
func (l *log) compact(system []kv.Token) *log {
	n := newLog(l.scope, l.user, system)
	n.lastTurn, n.lastFact, n.meta = l.lastTurn, l.lastFact, l.meta
	for _, f := range l.coming() {
		n.place(part{kind: factPart, id: f.id, name: f.name, view: whole(len(n.tokens))}, f.tokens)
	}
	for i := range l.parts {
		if p := &l.parts[i]; p.kind == turnPart && !p.gone {
			n.adopt(l, p)
		}
	}
	return n
}

// coming are the facts as they are once those that wait are placed.
func (l *log) coming() []fact {
	fs := l.facts()
	for _, f := range l.pending {
		fs = slices.DeleteFunc(fs, func(g fact) bool { return g.name == f.name })
		if len(f.tokens) > 0 {
			f.tokens = slices.Clone(f.tokens)
			fs = append(fs, f)
		}
	}
	return fs
}

// adopt places a part of another log, seeing all before it.
func (l *log) adopt(old *log, p *part) {
	l.place(part{kind: p.kind, id: p.id, name: p.name, turn: p.turn, view: whole(len(l.tokens))}, old.tokens[p.start:p.end])
}

// facts are those in view, in order.
func (l *log) facts() (out []fact) {
	for i := range l.parts {
		if p := &l.parts[i]; p.kind == factPart && !p.gone {
			out = append(out, fact{p.id, p.name, slices.Clone(l.tokens[p.start:p.end])})
		}
	}
	return out
}

// from returns the number of the part of turn id, or of the first turn after it. If there is none, it returns the number of parts.
func (l *log) from(id TurnID) int {
	i := slices.IndexFunc(l.parts, func(p part) bool { return p.kind == turnPart && p.id >= uint64(id) })
	if i < 0 {
		return len(l.parts)
	}
	return i
}

// without returns the log with the turns from id on taken back. 0: as it is.
func (l *log) without(id TurnID) *log {
	if i := l.from(id); id != 0 && i < len(l.parts) {
		l = l.clone()
		l.cut(i)
	}
	return l
}

// clone returns a copy. They share no memory that either changes.
func (l *log) clone() *log {
	m := *l
	m.parts, m.spans, m.pending, m.roots = slices.Clone(l.parts), slices.Clone(l.spans), slices.Clone(l.pending), slices.Clone(l.roots)
	m.tokens = slices.Clip(l.tokens)
	return &m
}

// Scope returns the name of a conversation's scope in the store, for db.Store.DeleteScope.
func Scope(id string) string { return "conversation/" + id }
