package chat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/hashed"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

var ctx = context.Background()

// house is a store with a host on it, which can be killed.
type house struct {
	t     rapid.TB
	dir   string
	o     hashed.Options
	store *db.Store
	rt    *hashed.Runtime
	h     *Host
}

func openHouse(t rapid.TB, dir string, o hashed.Options) *house {
	x := &house{t: t, dir: dir, o: o}
	x.open()
	return x
}

func (x *house) open() {
	var err error
	if x.store, err = db.Open(ctx, x.dir, db.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		x.t.Fatal(err)
	}
	if x.rt, err = hashed.New(ctx, x.store, x.o); err != nil {
		x.t.Fatal(err)
	}
	if x.h, err = NewHost(x.store, x.rt.Model(), x.rt); err != nil {
		x.t.Fatal(err)
	}
	x.h.tidySlice = 7
	x.h.tidier = true // nobody rewrites unless the test says so
}

// again opens the store as another process does, with an empty cache.
func (x *house) again() {
	if err := errors.Join(x.h.Close(), x.store.Close()); err != nil {
		x.t.Fatal(err)
	}
	x.open()
}

func (x *house) close() {
	err := x.h.Close()
	for seq, n := range x.rt.Live() {
		if n > 0 {
			x.t.Errorf("sequence %d has %d rows when the host is closed", seq, n)
		}
	}
	if err := errors.Join(err, x.store.Close()); err != nil {
		x.t.Error(err)
	}
}

// run is a conversation beside its model.
type run struct {
	*rapid.T
	x        *house
	id       string
	o        Options
	c        *Conversation
	m        *model
	turn     *Turn
	before   *model // what the open turn takes the place of; nil: nothing
	rewrites int
	recent   int
}

func (r *run) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("%v\nmodel:%v", err, r.m)
	}
}

func (r *run) open() {
	var err error
	r.c, err = r.x.h.Open(ctx, r.id, r.o)
	if errors.Is(err, ErrFactsFull) { // the first system prompt, and the facts of another one
		o := r.o
		o.System = nil
		r.c, err = r.x.h.Open(ctx, r.id, o)
	}
	r.check(err)
	r.rewrites = 0
}

func (r *run) tokens(what string, most int) []kv.Token {
	n := rapid.IntRange(1, most).Draw(r.T, what)
	return rapid.SliceOfN(rapid.Int32Range(0, 63), n, n).Draw(r.T, what)
}

// settled takes up in the model that the log was rewritten.
func (r *run) settled() {
	if n := r.c.Stats().Rewrites; n != r.rewrites {
		r.rewrites = n
		pieces := r.c.View()
		if r.turn != nil {
			r.Fatal("the log was rewritten while a turn was open")
		}
		r.check(r.m.rewrite(r.c.o.System, pieces))
	}
}

// same compares the scores after the last token, which depend on every row that is visible and on no other.
func (r *run) same(got []float32) {
	r.Helper()
	if !slices.Equal(got, r.m.scores()) {
		r.Fatalf("the scores are not those of the model:%v\nlog: %+v", r.m, r.c.View())
	}
}

// exact looks at what is stored under the key of the bare tokens: those are rows that saw all before them.
func (r *run) exact() {
	r.check(r.x.h.Close())
	if len(r.m.tokens) == 0 {
		return
	}
	p := kv.Prompt{Tokens: r.m.tokens, Scope: Scope(r.id), ScopeStart: len(r.m.system)}
	n, err := r.x.rt.Load(ctx, p, 0, nil)
	r.check(err)
	_, err = r.x.rt.Load(ctx, p, 0, []kv.Range{{Start: 0, End: n}})
	r.check(err)
	var seen []hashed.Seen
	for pos, row := range r.x.rt.Rows(0) {
		want := r.m.o.Next(p.Tokens[pos], pos, seen)
		if seen = append(seen, hashed.Seen{Pos: pos, Row: want}); row.Row != want {
			r.Fatalf("row %d of %d that are stored under the tokens alone is not what they make: model%v", pos, n, r.m)
		}
	}
	r.check(r.x.rt.Remove(0, everything))
}

// Whatever is done to a conversation, each token attends to what the model says.
func TestConversation(t *testing.T) {
	dir := memdir.Dir(t)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		o := hashed.Options{BlockTokens: 16, Sequences: 8, Cells: 1 << 12}
		x := openHouse(t, fmt.Sprintf("%s/%d", dir, n), o)
		defer x.close()
		system := rapid.SliceOfN(rapid.Int32Range(0, 63), 0, 9).Draw(t, "system")
		r := &run{T: t, x: x, id: "c", o: Options{System: system, Facts: 40, Ring: rapid.IntRange(24, 60).Draw(t, "ring"), Reserve: 8}}
		r.open()
		defer r.exact()
		r.m = newModel(o, system, r.o.Facts, r.o.Ring)
		idle := func(f func()) func(*rapid.T) {
			return func(t *rapid.T) {
				if r.T = t; r.turn != nil {
					t.Skip("a turn is open")
				}
				f()
			}
		}
		open := func(f func()) func(*rapid.T) {
			return func(t *rapid.T) {
				if r.T = t; r.turn == nil {
					t.Skip("no turn is open")
				}
				f()
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin":    idle(r.begin),
			"begin 2":  idle(r.begin),
			"instead":  idle(r.instead),
			"generate": open(r.generate),
			"verify":   open(r.verify),
			"branches": open(r.branches),
			"append": open(func() {
				tokens := r.tokens("append", 3)
				if err := r.turn.Append(ctx, tokens); errors.Is(err, ErrTurnFull) {
					return
				} else {
					r.check(err)
				}
				r.m.extend(tokens...)
			}),
			"logits": open(func() {
				got, err := r.turn.Logits(ctx)
				r.check(err)
				r.same(got)
			}),
			"commit": open(func() { r.check(r.turn.Commit(ctx)); r.ended() }),
			"abort":  open(func() { r.check(r.turn.Abort(ctx)); r.aborted() }),
			"fact":   func(t *rapid.T) { r.T = t; r.setFact() },
			"rewind": idle(func() {
				if id, i, ok := r.someTurn(); ok {
					r.check(r.c.Rewind(ctx, id))
					r.m.cut(i)
				}
			}),
			"forget": idle(func() {
				if id, i, ok := r.someTurn(); ok {
					r.check(r.c.Forget(ctx, id))
					r.m.parts[i].gone = true
					r.settled()
				}
			}),
			"system": idle(func() {
				s := rapid.SliceOfN(rapid.Int32Range(0, 63), 0, 9).Draw(r.T, "system")
				if err := r.c.SetSystem(ctx, s); errors.Is(err, ErrFactsFull) {
					return
				} else {
					r.check(err)
				}
				r.settled()
			}),
			"tidy": idle(func() {
				for range rapid.IntRange(1, 3).Draw(r.T, "slices") {
					x.h.tidySome()
					x.h.tidier = true
				}
				r.settled()
			}),
			"merge": idle(func() { r.c.rewrite = mergedFacts }),
			"fold":  func(t *rapid.T) { r.T = t; r.check(r.c.refile(ctx)) },
			"park":  idle(func() { r.check(x.h.Trim(ctx, o.Cells)) }),
			"again": func(t *rapid.T) {
				r.T = t
				if r.turn != nil {
					r.aborted()
				}
				// What was evicted, or placed, for turns that were not committed is as it was.
				x.again()
				r.open()
				r.reread()
			},
			"": func(t *rapid.T) { r.T = t; r.clean() },
		})
	})
}

// reread compares what is read with the model, and takes up in it that evictions are forgotten that no committed turn followed.
func (r *run) reread() {
	pieces := r.c.View()
	if len(pieces) != len(r.m.parts) {
		r.Fatalf("read again: %+v, and the model has%v", pieces, r.m)
	}
	for i := range pieces {
		q, p := pieces[i], &r.m.parts[i]
		if q.Start != p.start || q.End != p.end || q.Kind != p.kind || q.Name != p.name || q.Turn > 0 && uint64(q.Turn) != p.id || q.Gone != p.gone && (q.Gone || p.kind != "turn") {
			r.Fatalf("read again: %+v is not part %d of%v", q, i, r.m)
		}
		p.gone = q.Gone
	}
	var want, got []string
	for _, f := range r.m.pending {
		want = append(want, fmt.Sprint(f.name, f.tokens))
	}
	for _, f := range r.c.log.pending {
		got = append(got, fmt.Sprint(f.name, f.tokens))
	}
	if !slices.Equal(want, got) {
		r.Fatalf("read again: facts %v wait, want %v", got, want)
	}
	r.m.next = uint64(r.c.log.lastTurn)
}
