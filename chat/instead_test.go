package chat_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/hashed"
	"github.com/dormousekv/dormouse/kv"
)

// A turn in the place of another one is in the conversation with Commit, and the other one until then.
func TestInstead(t *testing.T) {
	for _, system := range [][]kv.Token{nil, tokens(1, 20)} {
		r := newRoom(t, hashed.Options{})
		o := chat.Options{System: system, Ring: 200, Reserve: 20}
		c := r.conversation("a", o)
		first := r.turn(c, tokens(2, 20), 8, chat.BeginOptions{})
		second := r.turn(c, tokens(3, 20), 8, chat.BeginOptions{})
		r.check(c.SetFact(ctx, "name", tokens(4, 5)))
		third := r.turn(c, tokens(5, 20), 8, chat.BeginOptions{})
		r.check(c.SetFact(ctx, "waits", tokens(6, 5)))
		want, facts := c.Turns(), c.Facts()
		same := func(when string) {
			t.Helper()
			if got := c.Turns(); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(c.Facts(), facts) {
				t.Errorf("%s: turns %+v and facts %+v, want %+v and %+v", when, got, c.Facts(), want, facts)
			}
		}

		turn := r.begin(c, tokens(7, 9), chat.BeginOptions{Instead: second})
		if n := len(c.Turns()); n != 1 {
			t.Errorf("%d turns before the one that is open, want the first", n)
		}
		branches, err := turn.Fork(ctx, 3)
		r.check(err)
		r.check(turn.Advance(ctx, branches, [][]kv.Token{tokens(8, 2), tokens(9, 2), tokens(10, 2)}))
		r.check(turn.Abort(ctx))
		same("aborted")
		r.again()
		c = r.conversation("a", o)
		same("aborted, and opened again")
		for _, bad := range []chat.TurnID{99, turn.ID()} {
			_, err := c.Begin(ctx, tokens(7, 9), chat.BeginOptions{Instead: bad})
			r.want(err, chat.ErrNoTurn)
		}
		if _, err := c.Begin(ctx, tokens(7, 300), chat.BeginOptions{Instead: second}); err == nil {
			t.Error("a message that is too long begins a turn")
		}
		same("a turn that did not begin")

		turn = r.begin(c, tokens(7, 9), chat.BeginOptions{Instead: second})
		r.answer(turn, 3)
		r.check(c.SetFact(ctx, "late", tokens(11, 5))) // waits for the next turn
		r.check(c.SetFact(ctx, "name", tokens(12, 5)))
		r.check(turn.Commit(ctx))
		want, facts = c.Turns(), c.Facts()
		if len(want) != 2 || want[0].ID != first || want[1].ID != turn.ID() || want[1].ID <= third || len(facts) != 3 {
			t.Errorf("committed: %+v, %+v", want, facts)
		}
		r.again()
		c = r.conversation("a", o)
		same("committed, and opened again")
		r.turn(c, tokens(13, 9), 3, chat.BeginOptions{})
		r.clean(c)
	}
}

// A policy that panics, in a program that recovers, has begun no turn: the old ones are there, and what is said next comes after them.
func TestInsteadPolicyPanics(t *testing.T) {
	r := newRoom(t, hashed.Options{})
	o := chat.Options{System: tokens(1, 20), Ring: 200, Reserve: 20}
	c := r.conversation("a", o)
	r.turn(c, tokens(2, 20), 8, chat.BeginOptions{})
	second := r.turn(c, tokens(3, 20), 8, chat.BeginOptions{})
	r.check(c.SetFact(ctx, "waits", tokens(4, 5)))
	want := c.Turns()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the policy's panic is gone")
			}
		}()
		c.Begin(ctx, tokens(5, 9), chat.BeginOptions{Instead: second, Policy: func([]chat.TurnInfo, []float32) []bool { panic("a policy") }})
	}()
	if got := c.Turns(); !reflect.DeepEqual(got, want) {
		t.Errorf("after the panic: %+v, want %+v", got, want)
	}
	third := r.turn(c, tokens(6, 9), 3, chat.BeginOptions{})
	r.again()
	c = r.conversation("a", o)
	if got := c.Turns(); len(got) != 3 || got[1].ID != second || got[2].ID != third {
		t.Errorf("opened again: %+v, want turn %d after those of before", got, third)
	}
	r.clean(c)
}

// insteadChild, in the environment, makes the test binary a process that answers a turn anew in a store, and waits to be killed.
const insteadChild = "CHAT_INSTEAD_CHILD"

// A process that is killed while it answers a turn anew, at any moment before Commit, leaves the old turn; after it, the new one.
func TestInsteadKilled(t *testing.T) {
	o := chat.Options{Ring: 400, Reserve: 20}
	if dir := os.Getenv(insteadChild); dir != "" {
		store, err := db.Open(ctx, dir, db.Options{})
		if err != nil {
			t.Fatal(err)
		}
		rt, err := hashed.New(ctx, store, hashed.Options{})
		if err != nil {
			t.Fatal(err)
		}
		h, err := chat.NewHost(store, rt.Model(), rt)
		if err != nil {
			t.Fatal(err)
		}
		c, err := h.Open(ctx, "a", o)
		if err != nil {
			t.Fatal(err)
		}
		at := func(what string) {
			if what == os.Getenv(insteadChild+"_UNTIL") {
				fmt.Println("at", what)
				select {}
			}
		}
		turns := c.Turns()
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		turn, err := c.Begin(ctx, tokens(7, 9), chat.BeginOptions{Instead: turns[len(turns)-1].ID})
		must(err)
		at("begun")
		must(c.SetFact(ctx, "late", tokens(11, 5)))
		at("fact")
		branches, err := turn.Fork(ctx, 4)
		must(err)
		must(turn.Advance(ctx, branches, [][]kv.Token{tokens(8, 2), tokens(9, 2), tokens(10, 2), tokens(11, 2)}))
		at("branches")
		must(branches[2].Promote(ctx))
		at("promoted")
		must(turn.Commit(ctx))
		at("committed")
	}
	for _, moment := range []string{"begun", "fact", "branches", "promoted", "committed"} {
		r := newRoom(t, hashed.Options{})
		c := r.conversation("a", o)
		r.turn(c, tokens(2, 20), 8, chat.BeginOptions{})
		r.check(c.SetFact(ctx, "name", tokens(4, 5)))
		r.turn(c, tokens(3, 20), 8, chat.BeginOptions{})
		want := c.Turns()
		r.close()

		child := exec.Command(os.Args[0], "-test.run", "^TestInsteadKilled$")
		child.Env = append(os.Environ(), insteadChild+"="+r.dir, insteadChild+"_UNTIL="+moment)
		said, err := child.StdoutPipe()
		r.check(err)
		r.check(child.Start())
		in := bufio.NewScanner(said)
		last := ""
		for in.Scan() {
			if last = in.Text(); last == "at "+moment {
				break
			}
		}
		child.Process.Kill()
		child.Wait()
		if last != "at "+moment {
			t.Fatalf("the child ends before it is %q: %q", moment, last)
		}

		r.open()
		c = r.conversation("a", o)
		got := c.Turns()
		if moment == "committed" {
			if len(got) != 2 || got[0].ID != want[0].ID || !reflect.DeepEqual(append(got[1].Message, got[1].Answer...), append(tokens(7, 9), tokens(10, 2)...)) {
				t.Errorf("killed when %s: %+v", moment, got)
			}
		} else if len(got) != 2 || got[1].ID != want[1].ID || !reflect.DeepEqual(got[1].Answer, want[1].Answer) || !reflect.DeepEqual(got[1].Message, want[1].Message) {
			t.Errorf("killed when %s: %+v, want %+v", moment, got, want)
		}
		r.turn(c, tokens(13, 9), 3, chat.BeginOptions{})
		r.clean(c)
	}
}
