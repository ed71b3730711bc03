package chat_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/internal/hashed"
	"github.com/dormousekv/dormouse/kv"
)

func facts(c *chat.Conversation) string {
	var out []string
	for _, f := range c.Facts() {
		out = append(out, fmt.Sprintf("%s%d", f.Name, len(f.Tokens)))
	}
	return strings.Join(out, " ")
}

// Merge makes room; what it left out goes, what it made comes, and the next log has them so.
func TestMerge(t *testing.T) {
	r := newRoom(t, hashed.Options{})
	var asked []string
	c := r.conversation("a", chat.Options{System: tokens(1, 4), Facts: 24, Ring: 60, Merge: func(_ context.Context, fs []chat.Fact, room int) ([]chat.Fact, error) {
		for _, f := range fs {
			asked = append(asked, fmt.Sprint(f.Name, len(f.Tokens)))
		}
		asked = append(asked, fmt.Sprint(room))
		return []chat.Fact{fs[1], {Name: "sum", Tokens: tokens(9, 5)}}, nil
	}})
	r.check(c.SetFact(ctx, "a", tokens(2, 8)))
	r.turn(c, tokens(3, 5), 5, chat.BeginOptions{})
	r.check(c.SetFact(ctx, "b", tokens(4, 8)))
	r.check(c.SetFact(ctx, "c", tokens(5, 8)))
	if got := strings.Join(asked, " "); got != "a8 b8 c8 20" {
		t.Errorf("Merge was asked for %q", got)
	}
	if got := facts(c); got != "b8 sum5" {
		t.Errorf("facts %q", got)
	}
	r.check(r.h.Tidy(ctx))
	if s := c.Stats(); s.Rewrites != 1 {
		t.Errorf("%d rewrites", s.Rewrites)
	}
	r.again()
	c = r.conversation("a", chat.Options{Facts: 24, Ring: 60})
	if got := facts(c); got != "b8 sum5" {
		t.Errorf("read again: facts %q", got)
	}
	for i, p := range c.View() {
		if want := []string{"system", "fact b", "fact sum", "turn"}[i]; strings.TrimSpace(p.Kind+" "+p.Name) != want || p.Gone {
			t.Errorf("piece %d is %+v, want %s", i, p, want)
		}
	}
}

// Facts that are set while Merge works stay as they are, and together they never take more than there is.
func TestMergeMeanwhile(t *testing.T) {
	r := newRoom(t, hashed.Options{})
	var c *chat.Conversation
	var meanwhile func()
	var less []chat.Fact
	c = r.conversation("a", chat.Options{Facts: 20, Ring: 60, Merge: func(_ context.Context, fs []chat.Fact, _ int) ([]chat.Fact, error) {
		f := meanwhile
		meanwhile = func() {}
		f()
		return less, nil
	}})
	set := func(name string, n int) { r.Helper(); r.check(c.SetFact(ctx, name, tokens(n, n))) }
	set("a", 6)
	set("b", 6)
	set("c", 6)
	meanwhile = func() { set("a", 3); r.check(c.SetFact(ctx, "b", nil)) }
	less = []chat.Fact{{Name: "a", Tokens: tokens(6, 6)}, {Name: "b", Tokens: tokens(2, 2)}, {Name: "d", Tokens: tokens(7, 7)}}
	set("d", 7)
	if got := facts(c); got != "a3 d7" {
		t.Errorf("facts %q: a and b were set meanwhile", got)
	}
	meanwhile = func() { set("e", 9) }
	less = []chat.Fact{{Name: "d", Tokens: tokens(7, 7)}, {Name: "f", Tokens: tokens(5, 5)}}
	r.want(c.SetFact(ctx, "g", tokens(11, 11)), chat.ErrFactsFull)
	if got := facts(c); got != "a3 d7 e9" {
		t.Errorf("facts %q, and there was no room for more", got)
	}
	meanwhile = func() {}
	for _, less = range [][]chat.Fact{{{Name: "x", Tokens: tokens(1, 21)}}, {{Name: "x", Tokens: []kv.Token{64}}}} {
		if err := c.SetFact(ctx, "g", tokens(11, 11)); err == nil || facts(c) != "a3 d7 e9" {
			t.Errorf("%v, facts %q", err, facts(c))
		}
	}
	less = nil
	set("g", 11) // Merge leaves nothing
	if got := facts(c); got != "" {
		t.Errorf("facts %q", got)
	}
	r.turn(c, tokens(3, 5), 5, chat.BeginOptions{})
	r.clean(c)
}

// The system prompt and the facts together never take more than Facts, whatever the facts are called, and whoever sets the prompt.
func TestFactsCap(t *testing.T) {
	r := newRoom(t, hashed.Options{})
	c := r.conversation("a", chat.Options{System: tokens(1, 4), Facts: 40, Ring: 60})
	r.check(c.SetFact(ctx, "", tokens(2, 30)))
	r.want(c.SetSystem(ctx, tokens(3, 20)), chat.ErrFactsFull)
	r.turn(c, tokens(4, 5), 5, chat.BeginOptions{})
	r.check(c.Close())
	for _, o := range []chat.Options{{System: tokens(3, 20), Facts: 40, Ring: 60}, {Facts: 33, Ring: 60}} {
		_, err := r.h.Open(ctx, "a", o)
		r.want(err, chat.ErrFactsFull)
	}
	c = r.conversation("a", chat.Options{System: tokens(3, 10), Facts: 40, Ring: 60})
	turn := r.begin(c, tokens(5, 3), chat.BeginOptions{})
	list := see(see(nil, tokens(3, 10)), tokens(2, 30), kv.Range{End: 10})
	list = see(list, c.Turns()[0].Message, kv.Range{End: 40})
	for _, x := range c.Turns()[0].Answer {
		list = append(list, hashed.Entry{Token: x, Pos: len(list), Visible: []kv.Range{{End: len(list)}}})
	}
	r.expect(turn, see(list, tokens(5, 3), kv.Range{End: len(list)}))
}

// A newer fact takes the older one's place, at once for the next turn; facts that are set in a turn wait for the next one, across a kill, too.
func TestFactsWait(t *testing.T) {
	r := newRoom(t, hashed.Options{})
	o := chat.Options{System: tokens(1, 4), Facts: 40, Ring: 60}
	c := r.conversation("a", o)
	r.check(c.SetFact(ctx, "a", tokens(2, 5)))
	turn := r.begin(c, tokens(3, 4), chat.BeginOptions{})
	r.check(c.SetFact(ctx, "a", tokens(4, 3)))
	r.check(c.SetFact(ctx, "b", tokens(5, 2)))
	list := see(see(see(nil, tokens(1, 4)), tokens(2, 5), kv.Range{End: 4}), tokens(3, 4), kv.Range{End: 9})
	r.expect(turn, list)
	r.check(turn.Commit(ctx))
	r.again()
	c = r.conversation("a", o)
	list = see(list, tokens(4, 3), kv.Range{End: 4}, kv.Range{Start: 12, End: 13}) // the last row is always visible
	list = see(list, tokens(5, 2), kv.Range{End: 4}, kv.Range{Start: 13, End: 16})
	list = see(list, tokens(6, 3), kv.Range{End: 4}, kv.Range{Start: 9, End: 18})
	turn = r.begin(c, tokens(6, 3), chat.BeginOptions{})
	r.expect(turn, list)
	r.check(turn.Abort(ctx))
	if x := c.Turns(); len(x) != 1 || !x[0].InView { // facts that an aborted turn placed are no turn
		t.Errorf("%+v", x)
	}
	for _, p := range c.View() {
		if p.Kind == "turn" && p.Visible != 4 || p.Name == "a" && p.Gone && p.Visible != 5 {
			t.Errorf("the last turn attended to the first fact and to itself, and View shows %+v", p)
		}
	}
	r.check(c.SetFact(ctx, "a", nil))
	turn = r.begin(c, tokens(7, 2), chat.BeginOptions{})
	list = see(list[:18], tokens(7, 2), kv.Range{End: 4}, kv.Range{Start: 9, End: 13}, kv.Range{Start: 16, End: 18})
	r.expect(turn, list)
	if got := slices.Collect(func(yield func(string) bool) {
		for _, p := range c.View() {
			if p.Kind == "fact" && p.Gone {
				yield(fmt.Sprint(p.Name, p.End-p.Start))
			}
		}
	}); !slices.Equal(got, []string{"a5", "a3"}) {
		t.Errorf("%q are out of view", got)
	}
}

// What is known already, and what is not there to be removed, costs neither a frame nor a row, now or after a kill.
func TestFactSaidAgain(t *testing.T) {
	r := newRoom(t, hashed.Options{})
	o := chat.Options{System: tokens(1, 4), Facts: 40, Ring: 60}
	c := r.conversation("a", o)
	bytes := func() (n int64) {
		for i, err := range r.h.List(ctx) {
			r.check(err)
			n = i.Bytes
		}
		return n
	}
	for i := range 4 {
		if i == 2 {
			r.again()
			c = r.conversation("a", o)
		}
		before := bytes()
		r.check(c.SetFact(ctx, "a", tokens(2, 5)))
		r.check(c.SetFact(ctx, "b", nil))
		if after := bytes(); i > 0 && after != before {
			t.Errorf("round %d: a file of %d bytes, and it had %d", i, after, before)
		}
		r.turn(c, tokens(3, 4), 2, chat.BeginOptions{})
		if v := c.View(); len(v) != 3+i {
			t.Errorf("round %d: the pieces of the log are %+v", i, v)
		}
	}
	r.check(c.SetFact(ctx, "a", nil))
	if got := facts(c); got != "" {
		t.Errorf("facts %q", got)
	}
}
