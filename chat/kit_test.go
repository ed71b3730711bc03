package chat_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/hashed"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

var (
	ctx     = context.Background()
	errTest = errors.New("told to fail")
)

// runtime is a hashed runtime whose calls a test sees, and may let fail, before they do anything.
type runtime struct {
	*hashed.Runtime
	hook atomic.Pointer[func(call string) error] // the host's goroutine between turns calls it, too
	load func(n int, ranges []kv.Range) int      // changes what Load returns
}

// before has f called before each call of the runtime; nil: nothing.
func (r *runtime) before(f func(call string) error) { r.hook.Store(&f) }

func (r *runtime) ask(call string) error {
	if f := r.hook.Load(); f != nil && *f != nil {
		return (*f)(call)
	}
	return nil
}

func (r *runtime) Decode(ctx context.Context, steps []kv.Step) error {
	if err := r.ask("decode"); err != nil {
		return err
	}
	return r.Runtime.Decode(ctx, steps)
}

func (r *runtime) Copy(from, to int, in kv.Range) error {
	if err := r.ask("copy"); err != nil {
		return err
	}
	return r.Runtime.Copy(from, to, in)
}

func (r *runtime) Remove(seq int, in kv.Range) error {
	if err := r.ask("remove"); err != nil {
		return err
	}
	return r.Runtime.Remove(seq, in)
}

func (r *runtime) Load(ctx context.Context, p kv.Prompt, seq int, ranges []kv.Range) (int, error) {
	if err := r.ask("load"); err != nil {
		return 0, err
	}
	n, err := r.Runtime.Load(ctx, p, seq, ranges)
	if r.load != nil {
		n = r.load(n, ranges)
	}
	return n, err
}

func (r *runtime) Store(ctx context.Context, p kv.Prompt, seq int, in kv.Range) error {
	if err := r.ask("store"); err != nil {
		return err
	}
	return r.Runtime.Store(ctx, p, seq, in)
}

// room is a store with a host on a hashed runtime.
type room struct {
	testing.TB
	dir   string
	o     hashed.Options
	store *db.Store
	rt    *runtime
	h     *chat.Host
}

func newRoom(t testing.TB, o hashed.Options) *room {
	t.Helper()
	r := &room{TB: t, dir: memdir.Dir(t), o: o}
	r.open()
	t.Cleanup(r.close)
	return r
}

func (r *room) open() {
	r.Helper()
	var err error
	r.store, err = db.Open(ctx, r.dir, db.Options{Logger: slog.New(slog.DiscardHandler)})
	r.check(err)
	rt, err := hashed.New(ctx, r.store, r.o)
	r.check(err)
	r.rt = &runtime{Runtime: rt}
	r.h, err = chat.NewHost(r.store, rt.Model(), r.rt)
	r.check(err)
}

// close looks at what the host leaves behind: nothing.
func (r *room) close() {
	r.Helper()
	if r.h == nil {
		return
	}
	r.rt.before(nil)
	r.check(r.h.Close())
	if live := r.rt.Live(); len(live) > 0 || r.rt.Used() > 0 {
		r.Errorf("rows that are left when the host is closed, by sequence: %v", live)
	}
	r.check(r.store.Close())
	r.h = nil
}

// again is another process, whose model may be another one.
func (r *room) again(change ...func(*hashed.Options)) {
	r.Helper()
	r.close()
	for _, f := range change {
		f(&r.o)
	}
	r.open()
}

func (r *room) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *room) want(err, want error) {
	r.Helper()
	if !errors.Is(err, want) {
		r.Fatalf("%v, want %v", err, want)
	}
}

func (r *room) conversation(id string, o chat.Options) *chat.Conversation {
	r.Helper()
	c, err := r.h.Open(ctx, id, o)
	r.check(err)
	return c
}

// tokens are n tokens, others for each seed.
func tokens(seed, n int) []kv.Token {
	out := make([]kv.Token, n)
	for i := range out {
		out[i] = kv.Token((seed*31 + i*7 + i*i*seed) % 64)
	}
	return out
}

func (r *room) begin(c *chat.Conversation, message []kv.Token, o chat.BeginOptions) *chat.Turn {
	r.Helper()
	t, err := c.Begin(ctx, message, o)
	r.check(err)
	return t
}

// answer samples n tokens.
func (r *room) answer(t *chat.Turn, n int) {
	r.Helper()
	if n == 0 {
		return
	}
	for _, err := range t.Generate(ctx, chat.Greedy, nil) {
		r.check(err)
		if n--; n == 0 {
			return
		}
	}
}

// turn is a whole turn of a message and so many tokens of an answer.
func (r *room) turn(c *chat.Conversation, message []kv.Token, n int, o chat.BeginOptions) chat.TurnID {
	r.Helper()
	t := r.begin(c, message, o)
	r.answer(t, n)
	r.check(t.Commit(ctx))
	return t.ID()
}

// expect compares the scores of an open turn with those that the visible rows of the log make, as the pieces of the view say. It is for a
// log whose turns all saw everything before them but what hidden names for each turn.
func (r *room) expect(t *chat.Turn, list []hashed.Entry) {
	r.Helper()
	got, err := t.Logits(ctx)
	r.check(err)
	rows := r.o.Expect(list)
	if !slices.Equal(got, r.o.Logits(rows[len(rows)-1])) {
		r.Fatal("the scores are not those of the rows that should be visible")
	}
}

// see appends tokens, each of which sees the positions in view and those of its own part.
func see(list []hashed.Entry, tokens []kv.Token, view ...kv.Range) []hashed.Entry {
	start := len(list)
	for _, t := range tokens {
		e := hashed.Entry{Token: t, Pos: len(list), Visible: slices.Clone(view)}
		e.Visible = append(e.Visible, kv.Range{Start: start, End: len(list)})
		list = append(list, e)
	}
	return list
}

// clean are the counters of what went wrong behind the caller's back.
func (r *room) clean(c *chat.Conversation) {
	r.Helper()
	if s := c.Stats(); s.StoreErrors > 0 || s.RewriteErrors > 0 {
		r.Errorf("%d errors of storing (%v), %d of rewriting (%v)", s.StoreErrors, s.StoreError, s.RewriteErrors, s.RewriteError)
	}
}
