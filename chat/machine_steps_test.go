package chat

// This file has what the machine of machine_test.go does: one method a step.

import (
	"errors"
	"slices"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

func (r *run) begin() { r.beginInstead(0) }

// instead begins a turn in the place of another one, and of all after it.
func (r *run) instead() {
	if id, _, ok := r.someTurn(); ok {
		r.beginInstead(id)
	}
}

func (r *run) beginInstead(id TurnID) {
	message := r.tokens("message", 12)
	reserve := rapid.IntRange(1, 20).Draw(r.T, "reserve")
	r.recent = rapid.IntRange(0, 4).Draw(r.T, "recent")
	prio := rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(r.T, "priority")
	var err error
	if _, now := r.c.due(); now { // Begin would do the same
		r.check(r.c.rewriteNow(ctx))
		r.settled()
	}
	if id != 0 && r.m.find(uint64(id)) < 0 {
		id = 0 // it was evicted, and rewritten away
	}
	r.turn, err = r.c.Begin(ctx, message, BeginOptions{Policy: Recent(r.recent), Reserve: reserve, Priority: prio, Instead: id})
	var long *TooLongError
	if errors.As(err, &long) {
		if len(message)+reserve <= r.o.Ring {
			r.Fatalf("%v for %d tokens in a ring of %d", err, len(message)+reserve, r.o.Ring)
		}
		return
	}
	if err != nil {
		r.Fatalf("begin: %v\nmodel:%v", err, r.m)
	}
	if id != 0 {
		r.settled() // to make room
		i := r.m.find(uint64(id))
		r.m.evict(len(message)+reserve, i)
		r.before = r.m.clone()
		r.m.cut(i)
	}
	r.m.begin(message, len(message)+reserve, r.recent, prio)
	if got := uint64(r.turn.ID()); got != r.m.next {
		r.Fatalf("turn %d, want %d", got, r.m.next)
	}
	got, err := r.turn.Logits(ctx)
	r.check(err)
	r.same(got)
}

func (r *run) ended() { r.turn, r.before = nil, nil }

// aborted is the model when a turn was aborted: evictions and facts stay, the turn does not.
func (r *run) aborted() {
	if r.before != nil {
		r.before.next = r.m.next
		r.m = r.before
		r.ended()
		return
	}
	i := len(r.m.parts) - 1
	n := r.m.parts[i].start
	r.m.parts, r.m.tokens, r.m.rows = r.m.parts[:i], r.m.tokens[:n], r.m.rows[:n]
	r.ended()
}

func (r *run) generate() {
	n := rapid.IntRange(1, 6).Draw(r.T, "n")
	for token, err := range r.turn.Generate(ctx, Greedy, nil) {
		if errors.Is(err, ErrTurnFull) {
			return
		}
		r.check(err)
		if want := Greedy(r.m.scores()); token != want {
			r.Fatalf("token %d, want %d: model%v", token, want, r.m)
		}
		r.m.extend(token)
		if n--; n == 0 {
			return
		}
	}
}

func (r *run) branches() {
	n := rapid.IntRange(1, 3).Draw(r.T, "branches")
	bs, err := r.turn.Fork(ctx, n)
	r.check(err)
	ms := make([]*model, n)
	for i := range ms {
		ms[i] = r.m.clone()
	}
	for range rapid.IntRange(1, 3).Draw(r.T, "steps") {
		next := make([][]kv.Token, n)
		for i := range next {
			next[i] = rapid.SliceOfN(rapid.Int32Range(0, 63), 0, 3).Draw(r.T, "next")
		}
		if err := r.turn.Advance(ctx, bs, next); errors.Is(err, ErrTurnFull) {
			break
		} else {
			r.check(err)
		}
		for i := range next {
			ms[i].extend(next[i]...)
			if !slices.Equal(bs[i].Logits(), ms[i].scores()) {
				r.Fatalf("branch %d has other scores than the model", i)
			}
		}
	}
	if k := rapid.IntRange(0, n).Draw(r.T, "promoted"); k < n {
		r.check(bs[k].Promote(ctx))
		r.m = ms[k]
	} else {
		for _, b := range bs {
			r.check(b.Drop())
		}
	}
}

func (r *run) verify() {
	draft := rapid.SliceOfN(rapid.Int32Range(0, 63), 0, 4).Draw(r.T, "draft")
	if rapid.Bool().Draw(r.T, "good") { // some of it is right
		m := r.m.clone()
		for i := range draft {
			draft[i] = Greedy(m.scores())
			m.extend(draft[i])
			if i == 2 {
				break
			}
		}
	}
	have := len(r.turn.Tokens())
	accepted, err := r.turn.Verify(ctx, draft, Greedy)
	if errors.Is(err, ErrTurnFull) {
		return
	}
	r.check(err)
	got := r.turn.Tokens()[have:]
	if len(got) != accepted+1 {
		r.Fatalf("%d accepted, and %d tokens more", accepted, len(got))
	}
	for _, token := range got {
		if want := Greedy(r.m.scores()); token != want {
			r.Fatalf("verified token %d, want %d", token, want)
		}
		r.m.extend(token)
	}
}

func (r *run) setFact() {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r.T, "name")
	var tokens []kv.Token
	now := slices.IndexFunc(r.m.coming(), func(f mpart) bool { return f.name == name })
	switch what := rapid.IntRange(0, 4).Draw(r.T, "remove"); {
	case what == 1 && now >= 0:
		tokens = slices.Clone(r.m.coming()[now].tokens)
	case what > 0:
		tokens = r.tokens("fact", 8)
	}
	if now < 0 && len(tokens) == 0 || now >= 0 && slices.Equal(r.m.coming()[now].tokens, tokens) {
		r.check(r.c.SetFact(ctx, name, tokens)) // nothing new
		return
	}
	err := r.c.SetFact(ctx, name, tokens)
	m := r.m.clone()
	m.set(name, tokens, 0)
	n := len(r.c.o.System)
	for _, f := range m.coming() {
		n += len(f.tokens)
	}
	if errors.Is(err, ErrFactsFull) {
		if n <= r.o.Facts {
			r.Fatalf("%v, and there are %d of %d", err, n, r.o.Facts)
		}
		return
	}
	r.check(err)
	if n > r.o.Facts && len(tokens) > 0 {
		r.Fatalf("%d tokens of facts in %d", n, r.o.Facts)
	}
	r.m.set(name, tokens, 0)
	if r.before != nil {
		r.before.set(name, tokens, 0)
	}
}

func (r *run) someTurn() (TurnID, int, bool) {
	var at []int
	for i, p := range r.m.parts {
		if p.kind == "turn" {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return 0, 0, false
	}
	i := rapid.SampledFrom(at).Draw(r.T, "turn")
	return TurnID(r.m.parts[i].id), i, true
}

// clean compares what is in the cache with what may be there.
func (r *run) clean() {
	facts, turns := 0, 0
	for _, p := range r.m.parts {
		switch {
		case p.gone:
		case p.kind == "turn":
			turns += p.end - p.start
		default:
			facts += p.end - p.start
		}
	}
	if facts > r.o.Facts || turns > r.o.Ring {
		r.Fatalf("%d tokens of facts in %d, %d of turns in %d", facts, r.o.Facts, turns, r.o.Ring)
	}
	most := facts + turns + 4 + 1
	if r.c.re != nil {
		most += r.c.re.rows
	}
	if used := r.x.rt.Used(); r.turn == nil && used > most {
		r.Fatalf("%d cells are used, and %d may be", used, most)
	}
	busy := 0
	for _, n := range r.x.rt.Live() {
		if n > 0 {
			busy++
		}
	}
	if r.turn == nil && busy > 2 {
		r.Fatalf("%d sequences have rows between turns", busy)
	}
}
