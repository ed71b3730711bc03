package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/tests/trace"
)

// dialogues are the traffics of the table in docs/eviction.md.
var dialogues = []struct {
	name             string
	longest, context int // turns of a dialogue, tokens of a prompt and its answer
}{
	{"chats of up to 30 turns", 30, 8192},
	{"questions of one or two turns", 2, 8192},
}

// Pinned facts are never evicted: from the second turn on that begins with them all of them are found, whatever else comes, whatever the
// policy. So no turn finds less of them than in the same store without pins. -v prints what was found, turn by turn: nothing is asserted of that.
// The ordinary run plays few sessions at 10 %; DORMOUSE_REPLAY=all those of docs/eviction.md.
func TestPinnedFacts(t *testing.T) {
	sessions, shares := 25, []float64{0.10}
	if os.Getenv("DORMOUSE_REPLAY") == "all" {
		sessions, shares = 150, []float64{0.03, 0.10, 0.30}
	}
	for _, d := range dialogues {
		t.Run(d.name, func(t *testing.T) {
			turns := trace.Dialogues(5, sessions, d.longest, d.context)
			distinct := 0
			seen := map[trace.Text]bool{}
			for i := range turns {
				for _, x := range append([]trace.Text{turns[i].Facts, turns[i].Answer}, turns[i].Rest...) {
					if !seen[x] {
						seen[x] = true
						distinct += x.Tokens
					}
				}
			}
			for _, share := range shares {
				blocks := int(share * float64(distinct) / trace.GeneratedBlockTokens)
				t.Logf("%d turns, %d different tokens; capacity %.0f %%: %d blocks", len(turns), distinct, 100*share, blocks)
				for _, policy := range []db.Policy{db.LRU(), db.CostAware()} {
					plain := playTurns(t, turns, blocks, policy, false)
					pinned := playTurns(t, turns, blocks, policy, true)
					t.Logf("%-11s %s", policy.Name(), plain)
					t.Logf("%-11s %s", "and pins", pinned)
					if len(pinned.facts) == 0 {
						t.Error("no turn began with pinned facts: this shows nothing")
					}
					for i, n := range pinned.facts {
						if n < plain.facts[i] {
							t.Errorf("%s at %g %%, turn %d: %d tokens of the pinned facts are found, %d without pins", policy.Name(), 100*share, i, n, plain.facts[i])
						}
					}
				}
			}
		})
	}
}

// found is what was found of the turns of all dialogues.
type found struct {
	asked, reused [11]int     // tokens, by number of the turn: 1 to 9, and 10 for all later ones; 0: of background jobs
	facts         map[int]int // by turn: tokens of the facts that were found; with pins, of the turns whose facts are pinned
	refused       int         // turns that could not be stored as a whole
}

func (f found) String() string {
	var b strings.Builder
	var asked, reused, late, lateReused int
	for i := range f.asked {
		if i > 0 {
			asked, reused = asked+f.asked[i], reused+f.reused[i]
		}
		if i > 2 {
			late, lateReused = late+f.asked[i], lateReused+f.reused[i]
		}
	}
	rate := func(what string, reused, asked int) {
		if asked > 0 {
			fmt.Fprintf(&b, "  %s %5.1f %%", what, 100*float64(reused)/float64(asked))
		}
	}
	rate("all", reused, asked)
	for i := 1; i <= 5; i++ {
		rate(fmt.Sprint(i), f.reused[i], f.asked[i])
	}
	rate("after 2", lateReused, late)
	rate("jobs", f.reused[0], f.asked[0])
	if f.refused > 0 {
		fmt.Fprintf(&b, "  (%d turns not stored whole)", f.refused)
	}
	return b.String()
}

// playTurns has a store of so many blocks answer the turns, as an app does: match, compute the rest, store it with the answer. With pin, each
// text of facts is pinned when it was first stored.
func playTurns(t *testing.T, turns []trace.Turn, blocks int, policy db.Policy, pin bool) (f found) {
	t.Helper()
	f.facts = map[int]int{}
	ctx := context.Background()
	s, err := db.Open(ctx, memdir.Dir(t), db.Options{
		Budget: 64 << 30, MinFree: -1, MaxBlocks: int64(blocks), HighWater: 1, LowWater: 1, Policy: policy,
		Codec: quant.Raw, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m, err := s.Register(ctx, kv.Descriptor{
		Name: "tiny", Weights: kv.HashOf("tiny"), Architecture: "test", Tokenizer: kv.HashOf("test"), RoPE: kv.RoPE{Type: kv.NoRoPE},
		BlockTokens: trace.GeneratedBlockTokens, Tensors: []kv.Tensor{{Role: kv.RoleK, DType: kv.Bytes, Width: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	row := make([]byte, 1<<16)
	isPinned := map[trace.Text]bool{}
	for i := range turns {
		turn := &turns[i]
		tokens := appendText(nil, turn.Facts)
		for _, x := range turn.Rest {
			tokens = appendText(tokens, x)
		}
		asked := len(tokens)
		all := kv.Prompt{Tokens: appendText(tokens, turn.Answer)}
		x, err := m.Match(ctx, kv.Prompt{Tokens: all.Tokens[:asked]}, db.MatchOptions{Limit: asked - 1})
		if err != nil {
			t.Fatal(err)
		}
		n := x.Tokens()
		if isPinned[turn.Facts] && n < turn.Facts.Tokens {
			t.Fatalf("turn %d: %d tokens are found (%v), and %d are pinned", i, n, x.Reason(), turn.Facts.Tokens)
		}
		number := min(turn.Number, len(f.asked)-1)
		if turn.Dialogue < 0 {
			number = 0
		}
		f.asked[number] += asked
		f.reused[number] += n
		if !pin || isPinned[turn.Facts] {
			f.facts[i] = min(n, turn.Facts.Tokens)
		}
		rest := len(all.Tokens) - n
		put, err := x.Extend(ctx, all, kv.Rows{kv.Packed(n, rest, row[:rest])}, db.PutOptions{})
		switch {
		case errors.Is(err, db.ErrNoSpace):
			f.refused++
		case err != nil:
			t.Fatal(err)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		if pin && turn.Dialogue >= 0 && !isPinned[turn.Facts] && put.Tokens >= turn.Facts.Tokens {
			prefix := kv.Prompt{Tokens: all.Tokens[:turn.Facts.Tokens]}
			if err := m.SetRef(ctx, fmt.Sprint("facts ", turn.Facts.ID), prefix, db.RefOptions{Pinned: true}); err != nil {
				t.Fatal(err)
			}
			isPinned[turn.Facts] = true
		}
	}
	st, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if st.Blocks > int64(blocks) || st.Evicted == 0 {
		t.Errorf("%d blocks are stored, room is for %d; %d were evicted: this shows nothing", st.Blocks, blocks, st.Evicted)
	}
	return f
}

// appendText appends the tokens of a text.
func appendText(to []kv.Token, x trace.Text) []kv.Token {
	r := rand.New(rand.NewPCG(x.ID, 0x64696c6f))
	for range x.Tokens {
		to = append(to, kv.Token(r.IntN(32_000)))
	}
	return to
}
