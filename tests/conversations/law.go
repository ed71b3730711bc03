//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/internal/logits"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// lawful is how far predictions of the same visible rows may be apart, in nats; rows that differ give over 1e-7.
const lawful = 1e-9

// law compares a conversation with a list of who sees whom, operation by operation; and once more, blind, to see that a key that says less is found.
func law(ctx context.Context, s settings, out io.Writer) error {
	if s.n == 0 {
		s.n = 10_000
	}
	r, err := load(stories, true, llama.ContextOptions{Tokens: 2048, Sequences: 8, Threads: 1})
	if err != nil {
		return err
	}
	l := &lawyer{r: r, rnd: rand.New(rand.NewPCG(s.seed, 0)), dir: filepath.Join(s.dir, "law")}
	if err := l.run(ctx, s.n, nil); err != nil {
		return err
	}
	fmt.Fprintf(out, "law: %d operations %v, %d comparisons, %d rewrites: KL at most %.2g\n", s.n, l.done, l.compared, l.rewrites, l.worst)
	if !(l.worst <= lawful) {
		return fmt.Errorf("KL %.2g, at most %g", l.worst, lawful)
	}
	// What the store has when a turn is answered anew depends on how far its background work came. So other operations are tried, too.
	for i := range uint64(20) {
		b := &lawyer{r: r, rnd: rand.New(rand.NewPCG(s.seed+i, 0)), dir: filepath.Join(s.dir, fmt.Sprint("blind", i)), enough: true}
		if err := b.run(ctx, s.n, func(rt chat.Runtime) chat.Runtime { return blind{rt} }); err != nil {
			return err
		}
		fmt.Fprintf(out, "law: with one recipe span left out: KL %.2g after %d comparisons\n", b.worst, b.compared)
		if b.worst > lawful {
			return nil
		}
	}
	return errors.New("a recipe span was left out, and nothing is different")
}

// lawyer drives a conversation and a list beside it.
type lawyer struct {
	r    *rig
	rnd  *rand.Rand
	dir  string
	seat *seat
	o    chat.Options
	c    *chat.Conversation
	ref  *list

	compared, rewrites int
	seen               int // rewrites of the conversation that is open
	worst              float64
	enough             bool // end when a difference is found
	done               map[string]int
	repeat             []kv.Token // of a turn that was taken back
}

func (l *lawyer) open(ctx context.Context, between func(chat.Runtime) chat.Runtime) (err error) {
	if l.seat, err = l.r.sit(ctx, l.dir, between); err == nil {
		l.c, err = l.seat.host.Open(ctx, "law", l.o)
		l.seen = 0
	}
	return err
}

func (l *lawyer) some(n int) []kv.Token {
	t := make([]kv.Token, 1+l.rnd.IntN(n))
	for i := range t {
		t[i] = kv.Token(3 + l.rnd.IntN(500))
	}
	return t
}

func (l *lawyer) compare(got []float32) {
	l.compared++
	l.worst = max(l.worst, logits.Divergence(l.ref.scores, got))
}

func (l *lawyer) run(ctx context.Context, n int, between func(chat.Runtime) chat.Runtime) error {
	l.o = chat.Options{System: l.some(20), Facts: 60, Ring: 150, Reserve: 12}
	l.done = map[string]int{}
	ref, err := l.r.sit(ctx, l.dir+".list", nil)
	if err != nil {
		return err
	}
	defer ref.close()
	l.ref = &list{rt: ref.rt, facts: l.o.Facts, ring: l.o.Ring}
	if err := l.ref.put(ctx, item{kind: "system", tokens: l.o.System}, nil); err != nil {
		return err
	}
	if err := l.open(ctx, between); err != nil {
		return err
	}
	defer func() { l.seat.close() }()
	for i := 0; i < n && ctx.Err() == nil && !(l.enough && l.worst > 1e-7); i++ {
		if err := l.operation(ctx, between); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
	}
	return ctx.Err()
}

func (l *lawyer) operation(ctx context.Context, between func(chat.Runtime) chat.Runtime) (err error) {
	what := []string{"turn", "turn", "turn", "turn", "turn", "turn", "turn", "turn", "fact", "fact", "rewind", "rewind", "forget", "park", "park", "again"}[l.rnd.IntN(16)]
	l.done[what]++
	if err := l.seat.host.Tidy(ctx); err != nil { // a long log is rewritten here, and not while the list looks away
		return err
	}
	if err := l.settle(ctx); err != nil {
		return err
	}
	switch what {
	case "turn":
		return l.turn(ctx)
	case "fact":
		name, tokens := string(rune('a'+l.rnd.IntN(4))), l.some(10)
		if l.rnd.IntN(4) == 0 {
			tokens = nil
		}
		if err = l.c.SetFact(ctx, name, tokens); errors.Is(err, chat.ErrFactsFull) {
			return nil
		}
		l.ref.set(name, tokens)
	case "rewind":
		if i := l.ref.someTurn(l.rnd); i > 0 {
			id := l.ref.items[i].id
			if l.rnd.IntN(4) > 0 { // answered anew: the same tokens, in another view perhaps
				l.repeat = slices.Clone(l.ref.tokens[l.ref.items[i].start:l.ref.items[i].end])
			}
			if err = l.ref.cut(i); err == nil {
				err = l.c.Rewind(ctx, chat.TurnID(id))
			}
		}
	case "forget":
		if i := l.ref.someTurn(l.rnd); i > 0 && l.rnd.IntN(4) == 0 {
			if err = l.c.Forget(ctx, chat.TurnID(l.ref.items[i].id)); err == nil {
				l.ref.items[i].gone = true
				err = l.settle(ctx)
			}
		}
	case "park":
		err = l.seat.host.Trim(ctx, 2048)
	case "again":
		if err = l.seat.close(); err == nil {
			err = l.open(ctx, between)
		}
		for _, t := range l.c.Turns() { // what was evicted for a turn that was not committed is back
			for i := range l.ref.items {
				if p := &l.ref.items[i]; p.kind == "turn" && p.id == uint64(t.ID) {
					p.gone = t.Evicted
				}
			}
		}
	}
	return err
}

// settle takes up in the list that the log was rewritten.
func (l *lawyer) settle(ctx context.Context) error {
	if n := l.c.Stats().Rewrites; n != l.seen {
		l.seen = n
		l.rewrites++
		return l.ref.rewrite(ctx)
	}
	return nil
}

func (l *lawyer) turn(ctx context.Context) error {
	message, answer, recent := l.some(12), l.some(12), l.rnd.IntN(6)
	if n := len(l.repeat); n > 1 {
		message, answer = l.repeat[:n/2], l.repeat[n/2:]
	}
	l.repeat = nil
	reserve := len(answer)
	t, err := l.c.Begin(ctx, message, chat.BeginOptions{Policy: chat.Recent(recent), Reserve: reserve})
	if err != nil {
		return err
	}
	if err := l.ref.begin(ctx, uint64(t.ID()), message, len(message)+reserve, recent); err != nil {
		return err
	}
	look := func() error {
		got, err := t.Logits(ctx)
		if err == nil {
			l.compare(got)
		}
		return err
	}
	if err := look(); err != nil {
		return err
	}
	for _, token := range answer {
		if err := errors.Join(t.Append(ctx, []kv.Token{token}), l.ref.extend(ctx, l.ref.sees, token), look()); err != nil {
			return err
		}
	}
	if l.rnd.IntN(8) == 0 {
		if err := l.ref.cut(len(l.ref.items) - 1); err != nil {
			return err
		}
		return t.Abort(ctx)
	}
	return t.Commit(ctx)
}
