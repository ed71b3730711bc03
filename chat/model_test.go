package chat

import (
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/internal/hashed"
	"github.com/dormousekv/dormouse/kv"
)

// model is a conversation as a slice of tokens, each with what it saw. It shares no code with the package but the policy.
type model struct {
	o       hashed.Options
	facts   int
	ring    int
	system  []kv.Token
	tokens  []kv.Token
	rows    []hashed.Row
	parts   []mpart
	pending []mpart            // facts; without tokens: removals
	next    uint64             // turns begun
	sees    func(pos int) bool // of the turn that is last
}

type mpart struct {
	kind, name string
	id         uint64
	prio       int
	tokens     []kv.Token // of what is not placed
	start, end int
	gone       bool
}

func newModel(o hashed.Options, system []kv.Token, facts, ring int) *model {
	m := &model{o: o, system: system, facts: facts, ring: ring}
	m.put(mpart{kind: "system", tokens: system}, nil)
	return m
}

func (m *model) clone() *model {
	n := *m
	n.tokens, n.rows, n.parts, n.pending = slices.Clone(m.tokens), slices.Clone(m.rows), slices.Clone(m.parts), slices.Clone(m.pending)
	return &n
}

// put computes a part, each of whose tokens sees the positions for which sees is true, and those of the part before it.
func (m *model) put(p mpart, sees func(pos int) bool) {
	p.start = len(m.tokens)
	p.end = p.start + len(p.tokens)
	for _, t := range p.tokens {
		m.decode(t, p.start, sees)
	}
	p.tokens = nil
	m.parts = append(m.parts, p)
}

func (m *model) decode(t kv.Token, start int, sees func(pos int) bool) {
	var seen []hashed.Seen
	for pos, r := range m.rows {
		if pos >= start || sees(pos) {
			seen = append(seen, hashed.Seen{Pos: pos, Row: r})
		}
	}
	m.rows = append(m.rows, m.o.Next(t, len(m.tokens), seen))
	m.tokens = append(m.tokens, t)
}

// view is the positions of parts that in says yes to, and those that every view has.
func (m *model) view(in func(p mpart) bool) func(pos int) bool {
	n := len(m.tokens)
	see := make([]bool, n)
	for _, p := range m.parts {
		if !p.gone && in(p) {
			for i := p.start; i < p.end; i++ {
				see[i] = true
			}
		}
	}
	for _, p := range m.parts {
		if p.end > p.start { // the first rows, but of a fact that is gone, and never all of a turn
			first := min(p.end, 4)
			if p.kind == "turn" {
				first = min(p.end-1, 4)
			}
			for i := p.start; i < first && !(p.gone && p.kind == "fact"); i++ {
				see[i] = true
			}
			break
		}
	}
	if n > 0 {
		see[n-1] = true
	}
	return func(pos int) bool { return see[pos] }
}

func standing(p mpart) bool { return p.kind != "turn" }

func (m *model) set(name string, tokens []kv.Token, id uint64) {
	m.pending = slices.DeleteFunc(m.pending, func(p mpart) bool { return p.name == name })
	m.pending = append(m.pending, mpart{kind: "fact", name: name, tokens: tokens, id: id})
}

// coming are the facts when those that wait are placed.
func (m *model) coming() (fs []mpart) {
	for _, p := range m.parts {
		if p.kind == "fact" && !p.gone {
			p.tokens = slices.Clone(m.tokens[p.start:p.end])
			fs = append(fs, p)
		}
	}
	for _, f := range m.pending {
		fs = slices.DeleteFunc(fs, func(g mpart) bool { return g.name == f.name })
		if len(f.tokens) > 0 {
			fs = append(fs, f)
		}
	}
	return fs
}

// begin evicts for room, places the facts, and computes a message. The policy is "the last recent turns".
func (m *model) begin(message []kv.Token, room, recent, prio int) {
	m.evict(room, len(m.parts))
	for _, f := range m.pending {
		for i := range m.parts {
			if m.parts[i].kind == "fact" && m.parts[i].name == f.name {
				m.parts[i].gone = true
			}
		}
		if len(f.tokens) > 0 {
			m.put(f, m.view(standing))
		}
	}
	m.pending = nil
	var turns []uint64
	for _, p := range m.parts {
		if p.kind == "turn" && !p.gone {
			turns = append(turns, p.id)
		}
	}
	turns = turns[max(0, len(turns)-recent):]
	m.next++
	m.sees = m.view(func(p mpart) bool { return standing(p) || slices.Contains(turns, p.id) })
	m.put(mpart{kind: "turn", id: m.next, prio: prio, tokens: message}, m.sees)
}

// find is the number of a turn's part; -1: there is none.
func (m *model) find(id uint64) int {
	return slices.IndexFunc(m.parts, func(p mpart) bool { return p.kind == "turn" && p.id == id })
}

// evict makes room among the first n parts.
func (m *model) evict(room, n int) {
	for {
		sum, first := 0, -1
		for i, p := range m.parts[:n] {
			if p.kind == "turn" && !p.gone {
				sum += p.end - p.start
				if first < 0 || p.prio < m.parts[first].prio {
					first = i
				}
			}
		}
		if sum+room <= m.ring {
			break
		}
		m.parts[first].gone = true
	}
}

// extend adds tokens to the turn that is last.
func (m *model) extend(tokens ...kv.Token) {
	p := &m.parts[len(m.parts)-1]
	for _, t := range tokens {
		m.decode(t, p.start, m.sees)
	}
	p.end = len(m.tokens)
}

// scores are those after the last token.
func (m *model) scores() []float32 { return m.o.Logits(m.rows[len(m.rows)-1]) }

// cut takes back part i and what follows. Facts wait again.
func (m *model) cut(i int) {
	var back []mpart
	for _, p := range m.parts[i:] {
		if p.kind == "fact" && !p.gone && !slices.ContainsFunc(m.pending, func(f mpart) bool { return f.name == p.name }) {
			p.tokens = slices.Clone(m.tokens[p.start:p.end])
			back = append(back, p)
		}
	}
	m.pending = append(back, m.pending...)
	n := m.parts[i].start
	m.parts, m.tokens, m.rows = m.parts[:i], m.tokens[:n], m.rows[:n]
}

// rewrite lays the log out anew as the package says that it did, if all that must be in it is, and nothing else: each part sees all before it.
func (m *model) rewrite(system []kv.Token, pieces []Piece) error {
	old := m.clone()
	key := func(kind, name string, id uint64) string {
		if kind == "fact" {
			return kind + name
		}
		return fmt.Sprint(kind, id)
	}
	want := map[string]mpart{}
	for _, f := range old.coming() {
		want[key("fact", f.name, 0)] = f
	}
	for _, p := range old.parts {
		if p.kind == "turn" {
			p.tokens = old.tokens[p.start:p.end]
			want[key("turn", "", p.id)] = p
		}
	}
	m.tokens, m.rows, m.parts, m.pending, m.system = nil, nil, nil, nil, system
	for _, p := range pieces {
		if p.Kind == "system" {
			m.put(mpart{kind: "system", tokens: system}, nil)
			continue
		}
		k := key(p.Kind, p.Name, uint64(p.Turn))
		w, ok := want[k]
		if !ok || p.Gone != w.gone && p.Kind == "turn" || p.Gone && p.Kind == "fact" {
			return fmt.Errorf("%s is in the log, which was rewritten:%v", k, old)
		}
		delete(want, k)
		m.put(w, func(int) bool { return true })
	}
	for k, p := range want {
		if p.gone {
			delete(want, k)
		}
	}
	for _, f := range old.pending { // set while the log was rewritten: they wait still
		if k := key("fact", f.name, 0); len(want[k].tokens) > 0 {
			m.pending = append(m.pending, f)
			delete(want, k)
		}
	}
	if len(want) > 0 {
		return fmt.Errorf("%v are not in the log that was rewritten, %v, of%v", want, pieces, old)
	}
	return nil
}

func (m *model) String() string {
	s := ""
	for _, p := range m.parts {
		s += fmt.Sprintf(" %s%s%d[%d,%d)", p.kind, p.name, p.id, p.start, p.end)
		if p.gone {
			s += "-"
		}
	}
	return s
}
