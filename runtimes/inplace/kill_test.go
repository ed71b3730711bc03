package inplace

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/internal/tiny"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

const killEnv, roundEnv = "DORMOUSE_INPLACE_CHILD", "DORMOUSE_INPLACE_ROUND"

// conversation is the tokens of a round, and where its turns end.
func conversation(round int) (p kv.Prompt, ends []int) {
	rng := rand.New(rand.NewPCG(uint64(round), 99))
	for len(p.Tokens) < 900 {
		for range 18 + rng.IntN(40) { // a store reports nothing under 16 tokens
			p.Tokens = append(p.Tokens, kv.Token(rng.IntN(small.Vocabulary)))
		}
		ends = append(ends, len(p.Tokens))
	}
	return p, ends
}

// A process that is killed at any moment leaves its turns in the ring: the next one maps it and goes on, to the last bit, as if nothing
// had been; rows of the turn in the middle of which it died are not there. Only a turn that was stored and not yet whole in the ring is restored.
func TestKill(t *testing.T) {
	if dir := os.Getenv(killEnv); dir != "" {
		chatter(t, dir)
		return
	}
	dir, rounds := memdir.Dir(t), 20
	if testing.Short() {
		rounds = 5
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	without, resident, restored, torn := 0, 0, 0, 0
	for round := range rounds {
		cmd := exec.Command(self, "-test.run=^TestKill$")
		cmd.Env = append(os.Environ(), killEnv+"="+dir, roundEnv+"="+strconv.Itoa(round))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		begun := make([]byte, 1+rand.IntN(6)) // turns that are over
		if _, err := io.ReadFull(out, begun); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(out)
		_ = cmd.Wait()
		if len(strings.Trim(string(said), "!")) > 0 {
			t.Fatalf("round %d: %s", round, said)
		}

		func() {
			store, err := db.Open(ctx, filepath.Join(dir, "store"), db.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			r, err := New(ctx, store, newModel(t), killOptions(dir))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if got := r.Recovered(); got.New || len(got.Damaged) > 0 {
				t.Fatalf("round %d: %+v", round, got)
			}
			torn += r.Recovered().Torn
			p, ends := conversation(round)
			n, err := r.Load(ctx, p, 0, []kv.Range{{End: len(p.Tokens)}})
			if err != nil {
				t.Fatal(err)
			}
			last := 0 // where the turn begins in which the process died
			for _, end := range ends {
				if end <= n {
					last = end
				}
			}
			s := r.Stats()
			inTurn := n - last
			for i, end := range ends { // the last turn that the store has may not have become one of the ring's
				if end == n && s.Restored > 0 && i > 0 {
					inTurn = end - ends[i-1]
				} else if end == n && s.Restored > 0 {
					inTurn = end
				}
			}
			if s.Resident+s.Restored != n || s.Restored > inTurn {
				t.Fatalf("round %d: %d tokens are stored, %d of them in turns that are over; %d rows were in the ring, %d restored", round, n, last, s.Resident, s.Restored)
			}
			if resident += s.Resident; s.Restored == 0 {
				without++
			}
			restored += s.Restored

			end := min(n+5, len(p.Tokens))
			plain := r.tiny.NewCache(end)
			for pos := n; pos < end; pos++ {
				if err := r.Decode(ctx, []kv.Step{{Token: p.Tokens[pos], Pos: pos, Logits: true}}); err != nil {
					t.Fatal(err)
				}
				from := pos
				if pos == n {
					from = 0
				}
				if want := r.tiny.Forward(plain, from, p.Tokens[from:pos+1]); !slices.Equal(want, r.Logits(0)) {
					t.Fatalf("round %d: the answer at position %d differs", round, pos)
				}
			}
		}()
	}
	t.Logf("%d kills: %d rows went on where they lay, %d torn ones were dropped, %d were restored from the store; %d times nothing was", rounds, resident, torn, restored, without)
	if resident == 0 {
		t.Error("nothing went on where it lay")
	}
}

func killOptions(dir string) Options {
	return Options{Ring: filepath.Join(dir, "ring"), Cells: 1000, Codec: quant.Raw, BlockTokens: 16}
}

// chatter computes and stores turn after turn, until it is killed. What it says is an error.
func chatter(t *testing.T, dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	round, err := strconv.Atoi(os.Getenv(roundEnv))
	fail(err)
	m, err := tiny.New(small, 1)
	fail(err)
	store, err := db.Open(context.Background(), filepath.Join(dir, "store"), db.Options{})
	fail(err)
	r, err := New(ctx, store, m, killOptions(dir))
	fail(err)
	p, ends := conversation(round)
	from := 0
	for _, end := range ends {
		for pos := from; pos < end; pos += 3 {
			var steps []kv.Step
			for i := pos; i < min(pos+3, end); i++ {
				steps = append(steps, kv.Step{Token: p.Tokens[i], Pos: i})
			}
			fail(r.Decode(ctx, steps))
		}
		fail(r.Store(ctx, p, 0, kv.Range{Start: from, End: end}))
		from = end
		fmt.Print("!")
	}
	select {}
}
