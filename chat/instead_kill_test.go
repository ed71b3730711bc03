package chat_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/internal/hashed"
)

// talkChild, in the environment, makes the test binary a process that talks until it is killed.
const talkChild = "CHAT_TALK_CHILD"

// state is what a program can see of a conversation.
func state(turns []chat.TurnInfo, facts []chat.Fact) string {
	var b strings.Builder
	for _, t := range turns {
		if !t.Evicted { // what was evicted for a turn that was not committed is back
			fmt.Fprint(&b, t.ID, slices.Concat(t.Message, t.Answer))
		}
	}
	return strings.ReplaceAll(fmt.Sprint(b.String(), facts), " ", ",")
}

// talk says "to STATE" before each call that changes the file, and "at STATE" after it.
func talk(r *room, rnd *rand.Rand) {
	o := chat.Options{System: tokens(1, 20), Facts: 80, Ring: 1 << 11, Reserve: 20, Log: 120} // the log is written anew now and then
	c := r.conversation("a", o)
	fmt.Println("at", state(c.Turns(), c.Facts()))
	facts := func(name string, f chat.Fact) []chat.Fact {
		fs := slices.DeleteFunc(c.Facts(), func(g chat.Fact) bool { return g.Name == name })
		if len(f.Tokens) > 0 {
			fs = append(fs, f)
		}
		return fs
	}
	for seed := 0; ; seed++ {
		old := c.Turns()
		set := func(shown []chat.TurnInfo) {
			name := string(rune('a' + rnd.IntN(3)))
			f := chat.Fact{Name: name, Tokens: tokens(rnd.IntN(1<<20), rnd.IntN(6))}
			fmt.Println("to", state(shown, facts(name, f)))
			r.check(c.SetFact(ctx, name, f.Tokens))
			fmt.Println("at", state(shown, c.Facts()))
		}
		if rnd.IntN(3) == 0 {
			set(old)
		}
		b, left := chat.BeginOptions{Policy: chat.Recent(rnd.IntN(4))}, old
		if n := len(old); n > 0 && (n > 6 || rnd.IntN(2) == 0) {
			i := rnd.IntN(n)
			if n > 6 {
				i = rnd.IntN(3) // the conversation stays short
			}
			b.Instead, left = old[i].ID, old[:i]
		}
		turn := r.begin(c, tokens(rnd.IntN(1<<20), 1+rnd.IntN(20)), b)
		if rnd.IntN(3) == 0 {
			set(old)
		}
		if rnd.IntN(2) == 0 {
			bs, err := turn.Fork(ctx, 3)
			r.check(err)
			r.check(turn.Advance(ctx, bs, [][]int32{tokens(seed, 2), tokens(seed+1, 2), tokens(seed+2, 2)}))
			r.check(bs[rnd.IntN(3)].Promote(ctx))
		} else {
			r.answer(turn, 3)
		}
		if rnd.IntN(4) == 0 {
			r.check(turn.Abort(ctx))
			fmt.Println("at", state(c.Turns(), c.Facts()))
			continue
		}
		n := len(turn.Tokens()) - len(turn.Answer())
		fmt.Println("to", state(append(slices.Clone(left), chat.TurnInfo{ID: turn.ID(), Message: turn.Tokens()[:n], Answer: turn.Answer()}), c.Facts()))
		r.check(turn.Commit(ctx))
		fmt.Println("at", state(c.Turns(), c.Facts()))
	}
}

// A process that answers turns anew, and sets facts meanwhile, is killed at random moments: there is what it was told last is durable, or what it was about
// to make durable, and nothing else.
func TestInsteadKilledAnywhere(t *testing.T) {
	if at := os.Getenv(talkChild); at != "" {
		dir, seed, _ := strings.Cut(at, "\n")
		n, _ := strconv.ParseUint(seed, 10, 64)
		r := &room{TB: t, dir: dir}
		r.open()
		talk(r, rand.New(rand.NewPCG(n, 0)))
	}
	kills := 40
	if testing.Short() {
		kills = 5
	}
	rnd := rand.New(rand.NewPCG(1, 0))
	r := newRoom(t, hashed.Options{})
	r.close()
	said := 0
	for i := range kills {
		child := exec.Command(os.Args[0], "-test.run", "^TestInsteadKilledAnywhere$")
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%s\n%d", talkChild, r.dir, i))
		out, err := child.StdoutPipe()
		r.check(err)
		r.check(child.Start())
		until := 2 + rnd.IntN(40) // lines, and a moment more
		var at, to string
		in := bufio.NewScanner(out)
		in.Buffer(nil, 1<<20)
		for n := 0; in.Scan(); n++ {
			switch what, s, _ := strings.Cut(in.Text(), " "); what {
			case "at":
				at, to = s, ""
			case "to":
				to = s
			default:
				t.Fatalf("kill %d: the child says %q", i, in.Text())
			}
			if n == until {
				time.AfterFunc(time.Duration(rnd.IntN(3000))*time.Microsecond, func() { child.Process.Kill() })
			}
			said++
		}
		child.Wait()

		r.open()
		c := r.conversation("a", chat.Options{})
		if got := state(c.Turns(), c.Facts()); got != at && (to == "" || got != to) {
			t.Fatalf("kill %d: opened again it is\n%s\nand was\n%s\nand was to be\n%s", i, got, at, to)
		}
		r.close()
	}
	t.Logf("%d kills, %d lines", kills, said)
}
